# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
# README's commands, for the tests that run them: readme_* README MOUNTPOINT [FOLDER].
# shellcheck shell=bash

# The sixty seconds between `make env` and `make umount`, with FOLDER for /tmp.
readme_commands() {
	# shellcheck disable=SC2016 # README's words
	sed -n '/eval "$(make env)"/,/make umount/p' "$1" | sed "1d;\$d;s,/tmp/,$3/,g;s,/mnt/gpumem,$2,g"
}

# The program for PyTorch.
readme_pytorch() {
	sed -n '/^    import gpumem, torch$/,/^$/p' "$1" | sed "s,^    ,,;s,/mnt/gpumem,$2,g"
}

# A torch.py for FOLDER that takes a tensor as torch.from_dlpack does: by the protocol of DLPack.
torch_substitute() {
	mkdir "$1"
	cat >"$1/torch.py" <<'END'
class Tensor:
    def __init__(self, view):
        self.capsule, self.shape = view.__dlpack__(), view.shape
        self.device = {1: "cpu", 2: "cuda"}[int(view.__dlpack_device__()[0])]


def from_dlpack(view):
    return Tensor(view)
END
}
