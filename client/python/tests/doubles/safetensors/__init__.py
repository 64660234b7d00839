# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A double of safetensors 0.8: the interface of safe_open, for files of F32 tensors."""

import json

__version__ = "0.8.0"
opened = []  # the paths that the double itself opened


class SafetensorError(Exception):
    pass


class _Slice:
    def __init__(self, file, name):
        self.file, self.name = file, name

    def get_shape(self):
        return self.file.header[self.name]["shape"]

    def get_dtype(self):
        return self.file.header[self.name]["dtype"]

    def __getitem__(self, index):
        return self.file.get_tensor(self.name)[index]


class safe_open:  # noqa: N801
    def __init__(self, filename, framework, device="cpu", *, backend="mmap"):
        opened.append(str(filename))
        with open(filename, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            try:
                self.header = json.loads(file.read(size))
            except ValueError as error:
                raise SafetensorError(f"Error while deserializing header: {error}") from None
            self.data = file.read()
        self.framework, self.device = framework, device

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def keys(self):
        return sorted(name for name in self.header if name != "__metadata__")

    def metadata(self):
        return self.header.get("__metadata__")

    def get_tensor(self, name):
        import torch
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        return torch.tensor(memoryview(self.data[begin:end]).cast("f").tolist()).reshape(entry["shape"])

    def get_tensors(self):
        return {name: self.get_tensor(name) for name in self.keys()}

    def get_slice(self, name):
        return _Slice(self, name)
