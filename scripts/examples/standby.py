#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A warm-standby pair: both processes have the model mapped; the process that has a lock serves.

  standby.py serve MODEL SOCKET   stand by, and serve when no other process does; start this twice
  standby.py ask SOCKET ROW       ask the serving process for a row of the model
  standby.py drill SOCKET ROW     kill -9 the serving process, and measure until the other process answers

MODEL is on a mount of gpumemfs (make_model.py, view_model.py). With SOCKET in the mount's host/, clients in containers
need nothing but the mount."""

import fcntl
import json
import os
import signal
import socket
import sys
import time

# The kernel closes a killed process's descriptors from the highest down. Descriptors of a GPU's driver take long to
# close, so the lock has a higher number.
LOCK_FD = 1000


def wait_for_lock(path):
    """Returns when this process has the lock. The kernel frees the lock when the process ends, also by kill -9."""
    plain = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    lock = fcntl.fcntl(plain, fcntl.F_DUPFD_CLOEXEC, LOCK_FD)
    os.close(plain)
    fcntl.flock(lock, fcntl.LOCK_EX)


def listen(address):
    """Takes the address over from an earlier process, in one step. The caller has the lock."""
    server, mine = socket.socket(socket.AF_UNIX), f"{address}.{os.getpid()}"
    server.bind(mine)
    server.listen()
    os.rename(mine, address)
    return server


def answer(embedding, row):
    return {"pid": os.getpid(), "row": [float(embedding[row, column]) for column in range(4)]}


def serve(model, address):
    from view_model import load
    embedding = load(model)["embedding"]
    answer(embedding, 0)  # maps the model and warms up the GPU before the first request
    print(f"{os.getpid()} stands by", flush=True)
    wait_for_lock(f"{model}.lock")
    server = listen(address)
    print(f"{os.getpid()} serves", flush=True)
    while True:
        client, _ = server.accept()
        try:
            with client:
                client.settimeout(5)
                client.sendall(json.dumps(answer(embedding, int(client.recv(100)))).encode())
        except (OSError, ValueError, IndexError) as error:
            print(f"{os.getpid()}: a client's request: {error!r}", file=sys.stderr)


def ask(address, row, seconds=30):
    """Asks again until a process answers: the serving process may be killed before it answers."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.connect(address)
                server.sendall(str(row).encode())
                if said := server.recv(1000):
                    return json.loads(said)
        except (FileNotFoundError, ConnectionError):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"no process answers at {address}")
        time.sleep(0.0002)


def drill(address, row):
    before = ask(address, row)
    os.kill(before["pid"], signal.SIGKILL)
    start = time.monotonic()
    after = ask(address, row)
    print(f"killed {before['pid']}; {after['pid']} answered {(time.monotonic() - start) * 1000:.1f} ms later, "
          + ("the same" if after["row"] == before["row"] else f"{after['row']} and not {before['row']}"))
    return 0 if after["row"] == before["row"] and after["pid"] != before["pid"] else 1


def main(words):
    if len(words) == 3 and words[0] == "serve":
        return serve(*words[1:])
    if len(words) == 3 and words[0] in ("ask", "drill") and words[2].isdigit():
        if words[0] == "drill":
            return drill(words[1], int(words[2]))
        print(ask(words[1], int(words[2])))
        return 0
    return __doc__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
