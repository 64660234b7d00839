# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The point for models that are wrong: each exception of gpumem.torch names the file and the tensor, torch has as much
memory afterwards as before, and old files stay. The interpreter is GPUMEM_PYTHON's, with torch."""

import json
import subprocess

from loading import Loading

# Arguments: a folder on a GPU. Prints a table of results by case: whether the case ended as wanted, and the exception.
SCRIPT = r'''
import json, os, sys
import torch
import gpumem.torch as gt
folder, results = sys.argv[1], {}
def at(name):
    return os.path.join(folder, name)
def check(case, kinds, words, function, *arguments, **options):
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    try:
        made = function(*arguments, **options)
        results[case] = [False, "no exception"]
    except kinds as error:
        text = str(error)
        error = None
        torch.cuda.synchronize()
        left = torch.cuda.memory_allocated() - before
        missing = [word for word in words if word not in text]
        results[case] = [not missing and not left, text.split("\n")[0][:200] + (f"; {left} bytes left" if left else "")
                         + (f"; without {missing}" if missing else "")]
def write(name, header, data):
    text = json.dumps(header).encode()
    with open(at(name), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
tensors = {f"layer.{i}": torch.full((64 << 20,), i, dtype=torch.bfloat16, device="cuda") for i in range(8)}
gt.save_file(tensors, at("whole.safetensors"))
with open(at("damaged.safetensors"), "wb") as file:
    file.write(b"\xff" * 64)
for mode in ("view", "copy", "auto"):
    check(f"a damaged header, {mode}", gt.SafetensorError, ["damaged.safetensors"], gt.load_file, at("damaged.safetensors"), mode=mode)
write("type.safetensors", {"odd": {"dtype": "F9", "shape": [4], "data_offsets": [0, 4]}}, bytes(4))
check("an unknown dtype", gt.SafetensorError, ["type.safetensors", "odd", "F9"], gt.load_file, at("type.safetensors"))
os.mkdir(at("model"))
os.link(at("whole.safetensors"), at("model/one.safetensors"))
with open(at("model/model.safetensors.index.json"), "w") as file:
    json.dump({"weight_map": {**dict.fromkeys(tensors, "one.safetensors"), "layer.8": "two.safetensors"}}, file)
check("a missing shard", FileNotFoundError, ["layer.8", "two.safetensors"], gt.load_model, at("model"))
os.link(at("whole.safetensors"), at("model/two.safetensors"))
check("a missing tensor", gt.SafetensorError, ["layer.8", "two.safetensors"], gt.load_model, at("model"))
with gt.safe_open(at("whole.safetensors"), device="cuda", mode="copy") as file:
    first = file.get_tensor("layer.0")
    gt.save_file({"other": tensors["layer.7"]}, at("whole.safetensors"))
    rest = file.get_tensors()
    results["a file that is replaced during a load"] = [all(torch.equal(rest[name], tensors[name]) for name in tensors),
                                                        "all tensors are those of the old file"]
del first, rest, file
gt.save_file(tensors, at("whole.safetensors"))
torch.cuda.empty_cache()
free = torch.cuda.mem_get_info()[0]
filling = [torch.empty(free - (600 << 20), dtype=torch.uint8, device="cuda")]
check("a full GPU, a private copy", OSError, ["whole.safetensors"], gt.load_file, at("whole.safetensors"))
os.setxattr(at("whole.safetensors"), "user.gpumem.share", b"trusted")
check("a full GPU, copy", (RuntimeError, OSError), ["whole.safetensors", "layer."], gt.load_file, at("whole.safetensors"), mode="copy")
views = gt.load_file(at("whole.safetensors"))
results["a full GPU, view"] = [all(torch.equal(views[name][:100], tensors[name][:100]) for name in tensors), "views of all tensors"]
del views
check("a full GPU, save_file", OSError, ["saved.safetensors"], gt.save_file, tensors, at("saved.safetensors"))
results["no part of the saved file stays"] = [not os.path.exists(at("saved.safetensors")), ""]
del filling
torch.cuda.empty_cache()
print(json.dumps(results), flush=True)
input()
results.clear()
check("the daemon is gone", OSError, ["whole.safetensors"], gt.load_file, at("whole.safetensors"))
print(json.dumps(results))
'''


def say(machine, line):
    for case, (as_wanted, text) in json.loads(line or "{}").items():
        machine.report.check(case, as_wanted, text)


def point_refusing(machine):
    loading = Loading(machine)
    reason = loading.missing()
    if reason:
        machine.report.absent("models that are wrong", reason)
        return
    with machine.mount("gpus=0,recovery=off") as mount:
        mount.warm()
        with subprocess.Popen([loading.python, "-c", SCRIPT, mount.gpu()], env=loading.env, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            say(machine, child.stdout.readline())
            mount.kill_processes()
            said, _ = child.communicate("\n", 60)
            say(machine, said)
        mount.kill()
        machine.report.check("the program ends by itself", child.returncode == 0, f"status {child.returncode}")
