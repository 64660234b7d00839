# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A program that knows nothing of gpumemfs sends tensors over torch.multiprocessing.Queue, under `gpumem run` and plainly:
in one PID and IPC namespace, and with the consumer in others. The interpreter is GPUMEM_PYTHON's."""

from examples import Examples
from harness import Mount

TENSORS = 1000
# "separate" is a command that starts Python in a PID and an IPC namespace of its own.
PROGRAM = r"""
import sys, time, torch, torch.multiprocessing as mp

def consume(queue, answers, tensors):
    try:
        torch.zeros(1, device="cuda")
        answers.put("ready")
        for number in range(tensors):
            tensor = queue.get(timeout=15)
            tensor += 1
            answers.put((number, float(tensor[0]), float(tensor[-1]), tensor.numel()))
            del tensor
    except BaseException as error:
        answers.put(f"{type(error).__name__}: {error}".splitlines()[0])

if __name__ == "__main__":
    tensors, separate = int(sys.argv[1]), sys.argv[2]
    mp.set_start_method("spawn")
    queue, answers = mp.Queue(), mp.Queue()
    if separate:
        mp.set_executable(separate)
    child = mp.Process(target=consume, args=(queue, answers, tensors), daemon=True)
    child.start()
    answer = answers.get(timeout=30)
    if answer != "ready":
        sys.exit(f"the consumer: {answer}")
    begin, sent = time.monotonic(), []
    for number in range(tensors):
        tensor = torch.full((1000 + number,), number, dtype=torch.float32, device="cuda")
        sent.append(tensor)
        queue.put(tensor)
        answer = answers.get(timeout=20)
        if answer != (number, number + 1, number + 1, 1000 + number):
            sys.exit(f"message {number}: {answer}")
        if float(tensor[7]) != number + 1:
            sys.exit(f"message {number}: the producer sees {float(tensor[7])}")
    print((time.monotonic() - begin) / tensors * 1e6)
    child.join()
"""
SEPARATE = '#!/bin/sh\nexec unshare --pid --ipc --mount --fork --mount-proc --kill-child {} "$@"\n'


def run(machine, examples, under, where, allocator):
    program = machine.scratch / "queues_program.py"
    program.write_text(PROGRAM)
    separate = machine.scratch / "queues_python"
    separate.write_text(SEPARATE.format(examples.python))
    separate.chmod(0o755)
    before = [machine.build / "gpumem", "run"] if under else []
    words = [*before, examples.python, program, TENSORS, separate if where == "separate" else ""]
    result = machine.run(words, check=False, timeout=120, env=dict(examples.env, PYTORCH_CUDA_ALLOC_CONF=allocator))
    said = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return (f"{float(result.stdout):.0f} us a tensor" if result.returncode == 0 else said[:150]), result


def queues(machine, examples, folder):
    for allocator in ("expandable_segments:True", "expandable_segments:False"):
        for where in ("together", "separate"):
            title = f"{TENSORS} tensors over torch.multiprocessing.Queue, {allocator}, {where}"
            if not examples.torch:
                machine.report.absent(title, f"{examples.python} has no torch with this GPU")
                continue
            plain, _ = run(machine, examples, False, where, allocator)
            ours, result = run(machine, examples, True, where, allocator)
            left = machine.settles(lambda: not [path for path in folder.iterdir() if path.name.startswith(".torch-")])
            machine.report.check(title, result.returncode == 0 and "by CUDA's handles" not in result.stderr and left,
                                 f"under gpumem run {ours}; plain torch: {plain}")


def point_queues(machine):
    examples = Examples(machine)
    with Mount(machine, backend="cuda") as mount:
        queues(machine, examples, mount.path / "gpu0")
