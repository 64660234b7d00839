# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Builds the wheel for pip (PEP 517). The package is files of Python alone, so a wheel is those in a zip file: that
needs nothing but Python, also on a machine without a network, and leaves nothing in the source tree."""

import base64
import hashlib
import os
import re
import zipfile

# What the import of this file has left beside it.
try:
    os.remove(__cached__)
    os.rmdir(os.path.dirname(__cached__))
except OSError:
    pass

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "gpumem")
WHEEL = "Wheel-Version: 1.0\nGenerator: gpumem\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _project():
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        text = file.read()
    return {name: re.search(rf'^{name} = .*"(.*)"', text, re.M)[1]
            for name in ("version", "description", "requires-python", "license")}


def _info(project):
    return f"gpumem-{project['version']}.dist-info"


def _metadata(project):
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    return (f"Metadata-Version: 2.1\nName: gpumem\nVersion: {project['version']}\nSummary: {project['description']}\n"
            f"License: {project['license']}\nRequires-Python: {project['requires-python']}\n"
            f"Description-Content-Type: text/markdown\n\n{readme}")


def _line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def _wheel(folder, files):
    """files: what is in it by its name there, as bytes. Its name in the folder."""
    project = _project()
    info, name = _info(project), f"gpumem-{project['version']}-py3-none-any.whl"
    files = {**files, f"{info}/METADATA": _metadata(project).encode(), f"{info}/WHEEL": WHEEL.encode()}
    record = "".join(_line(*one) for one in files.items()) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in {**files, f"{info}/RECORD": record.encode()}.items():
            wheel.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content)
    return name


def build_wheel(folder, config_settings=None, metadata_directory=None):
    files = {}
    for name in sorted(os.listdir(PACKAGE)):
        if name.endswith(".py") or name == "py.typed":
            with open(os.path.join(PACKAGE, name), "rb") as file:
                files[f"gpumem/{name}"] = file.read()
    return _wheel(folder, files)


def build_editable(folder, config_settings=None, metadata_directory=None):
    """A wheel that leads to this folder."""
    return _wheel(folder, {"gpumem.pth": HERE.encode() + b"\n"})
