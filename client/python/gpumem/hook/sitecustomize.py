# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The hook of `gpumem run`, which Python imports at its start because this folder is in PYTHONPATH.

Watches for the import of frameworks, which gpumem.run then changes, and imports the sitecustomize module that Python
would have imported without this folder. Nothing of gpumem is imported before a framework is. Every Python of a command
comes here, old versions too, so the syntax is that of Python 3.4."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_MODES = ("auto", "view", "copy")
_WATCHED = ("safetensors", "safetensors.torch", "torch.multiprocessing.reductions", "transformers.modeling_utils",
            "transformers.core_model_loading", "transformers.models.auto.auto_factory", "sglang.srt.model_loader.weight_utils",
            "vllm.model_executor.model_loader.weight_utils")
_AT_SECURE = 23


def _say(text):
    """One line on stderr. A program whose stderr is closed must not notice."""
    try:
        sys.stderr.write("gpumem run: " + text + "\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


def _is_set_id():
    """Whether the process has rights that its user lacks, by set-uid, set-gid or capabilities of its file."""
    if os.getuid() != os.geteuid() or os.getgid() != os.getegid():
        return True
    try:
        with open("/proc/self/auxv", "rb") as file:
            words = memoryview(file.read()).cast("L")
    except PermissionError:
        return True
    except (OSError, TypeError):
        return False
    return any(words[at] == _AT_SECURE and words[at + 1] for at in range(0, len(words) - 1, 2))


def _wanted():
    """(mode, whether statistics are wanted) of GPUMEM_RUN, or None."""
    value = os.environ.get("GPUMEM_RUN")
    if value is None or sys.version_info < (3, 9) or _is_set_id():
        return None
    mode, comma, rest = value.partition(",")
    if mode not in _MODES or (comma and rest != "stats"):
        _say("GPUMEM_RUN is 'auto', 'view' or 'copy', with ',stats' or without, not %r" % value)
        return None
    return mode, bool(comma)


def _change(module):
    """Has gpumem.run change a framework's module, which works as without the hook if that fails."""
    try:
        from gpumem import run
        run.change(module)
    except Exception as error:
        _say("%s is used as it is: %s: %s" % (module.__name__, type(error).__name__, error))


class _GpumemFinder:
    """Finds no module, but has the watched modules changed after their execution."""

    def find_spec(self, name, path=None, target=None):
        if name not in _WATCHED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    self._watch(spec.loader)
                return spec
        return None

    @staticmethod
    def _watch(loader):
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            _change(module)
        try:
            loader.exec_module = exec_module
        except AttributeError as error:
            _say("cannot watch an import: %s" % error)


def _make_importable():
    """The module gpumem comes last in the path, and only if Python finds it nowhere else."""
    import importlib.util
    found = importlib.util.find_spec("gpumem")
    if found is None or found.origin is None:
        sys.path.append(os.path.dirname(os.path.dirname(_HERE)))


def _report_nothing():
    if "gpumem.run" not in sys.modules:
        program = os.path.basename(sys.executable or "python3")
        _say("no framework loaded a file of a mount (%s, pid %d)" % (program, os.getpid()))


def _install():
    wanted = _wanted()
    if wanted is None or any(type(finder).__name__ == _GpumemFinder.__name__ for finder in sys.meta_path):
        return
    _make_importable()
    if wanted[1]:
        import atexit
        atexit.register(_report_nothing)
    sys.meta_path.insert(0, _GpumemFinder())
    for name in _WATCHED:
        if name in sys.modules:
            _change(sys.modules[name])


def _chain():
    """Imports the next sitecustomize of the path in the place of this module, without other hooks of gpumem. Python
    reports the exceptions."""
    from importlib import machinery, util
    path = [folder for folder in sys.path if os.path.realpath(folder or ".").split(os.sep)[-2:] != ["gpumem", "hook"]]
    spec = machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _install()
except Exception as error:
    _say("not installed: %s: %s" % (type(error).__name__, error))
_chain()
