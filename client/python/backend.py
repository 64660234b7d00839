# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Builds wheels: of the files of Python alone for pip (PEP 517), and with libraries and the command for scripts/wheel.
A wheel is a zip file: that needs nothing but Python, also on a machine without a network, and leaves nothing in the
source tree."""

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
COMMAND = b"[console_scripts]\ngpumem = gpumem.__main__:main\n"


def _project():
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        text = file.read()
    return {name: re.search(rf'^{name} = .*"(.*)"', text, re.M)[1]
            for name in ("version", "description", "requires-python", "license")}


def _plugins():
    """The entry points by which other packages find functions of the module."""
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        found = re.findall(r'^\[project\.entry-points\."(.*)"\]\n(.*) = "(.*)"', file.read(), re.M)
    return "".join(f"[{group}]\n{name} = {function}\n" for group, name, function in found).encode()


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


def _wheel(folder, files, platform="any"):
    """files: the wheel's contents as bytes, by name. Returns the name of the wheel in the folder."""
    project, tag = _project(), f"py3-none-{platform}"
    info, name = _info(project), f"gpumem-{project['version']}-{tag}.whl"
    kind = f"Wheel-Version: 1.0\nGenerator: gpumem\nRoot-Is-Purelib: {str(platform == 'any').lower()}\nTag: {tag}\n"
    files = {f"{info}/entry_points.txt": _plugins(), **files, f"{info}/METADATA": _metadata(project).encode(), f"{info}/WHEEL": kind.encode()}
    record = "".join(_line(*one) for one in files.items()) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, content in {**files, f"{info}/RECORD": record.encode()}.items():
            member = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            member.external_attr = (0o100755 if path.startswith("gpumem/bin/") else 0o100644) << 16
            wheel.writestr(member, content, zipfile.ZIP_DEFLATED)
    return name


def _files(folder, wanted=lambda name: True):
    """The contents of a folder's files, by their paths in the folder."""
    files = {}
    for here, _, names in os.walk(folder):
        for path in (os.path.join(here, name) for name in names if wanted(name)):
            with open(path, "rb") as file:
                files[os.path.relpath(path, folder)] = file.read()
    return dict(sorted(files.items()))


def _package():
    found = _files(PACKAGE, lambda name: name.endswith(".py") or name == "py.typed")
    return {f"gpumem/{name}": content for name, content in found.items()}


def build_wheel(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, _package())


def build_platform_wheel(folder, binaries, platform):
    """The module with the files in the folder binaries, which have the paths of the wheel there, and the command."""
    command = {f"{_info(_project())}/entry_points.txt": COMMAND + _plugins()}
    return _wheel(folder, {**_package(), **_files(binaries), **command}, platform)


def build_editable(folder, config_settings=None, metadata_directory=None):
    """A wheel that leads to this folder."""
    return _wheel(folder, {"gpumem.pth": HERE.encode() + b"\n"})
