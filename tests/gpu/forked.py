# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Python programs in fresh processes without the time of their imports: an interpreter imports the modules once, and each
program is a child of that interpreter, which has not used CUDA."""

import contextlib
import json
import subprocess
import threading

from harness import Failure

PATIENCE = 120

# Reads jobs, a line each: {"code", "words"}. The code runs in a child, whose stdout is this one's; then follows a line
# {"status"}. Modules that a child imports late are imported before the next child.
SERVER = r'''
import importlib, json, os, sys
def load(names):
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            pass
load(sys.argv[1:])
late, child = os.pipe()
os.set_inheritable(child, False)
for line in sys.stdin:
    job, had = json.loads(line), set(sys.modules)
    pid = os.fork()
    if not pid:
        sys.argv[1:] = job["words"]
        exec(job["code"], {"__name__": "__main__"})
        os.write(child, (" ".join(sorted(set(sys.modules) - had - {"__main__"}))[:60000] + "\n").encode())
        break
    status = os.waitpid(pid, 0)[1]
    if not status:
        names = b""
        while not names.endswith(b"\n"):
            names += os.read(late, 1 << 16)
        load(names.decode().split())
    print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)
'''


class Server(contextlib.AbstractContextManager):
    """words: what precedes the interpreter, such as gpumem run. errors: a path for the programs' stderr."""

    def __init__(self, words, modules, env, errors):
        self.errors = open(errors, "w+", encoding="utf-8", errors="replace")
        # torch asks NVML, and not CUDA, for the number of GPUs: a child could not use a CUDA that its parent has begun.
        self.process = subprocess.Popen([*map(str, words), "-c", SERVER, *modules], text=True, stdin=subprocess.PIPE,
                                        env=dict(env, PYTORCH_NVML_BASED_CUDA_CHECK="1"), stdout=subprocess.PIPE,
                                        stderr=self.errors)

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def run(self, code, *words):
        """The last line that the program printed, as JSON, and its stderr."""
        begin = self.errors.seek(0, 2)
        watchdog = threading.Timer(PATIENCE, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(json.dumps({"code": code, "words": list(map(str, words))}) + "\n")
            self.process.stdin.flush()
            result = None
            for line in self.process.stdout:
                said = json.loads(line) if line.startswith("{") else {}
                if "status" in said:
                    break
                result = said or result
            else:
                said = {"status": "none"}
        except BrokenPipeError:
            said = {"status": "none"}
        finally:
            watchdog.cancel()
        self.errors.seek(begin)
        errors = self.errors.read()
        if said["status"] or result is None:
            raise Failure(f"status {said['status']}: {' / '.join(errors.strip().splitlines()[-2:])}")
        return result, errors
