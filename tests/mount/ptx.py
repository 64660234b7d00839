# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Runs a PTX kernel without a GPU, a warp at a time: the part of PTX that client/cli/verify/tree.ptx uses.
An unknown instruction, an access outside of the given memory, an unaligned access, and a shuffle that some
lanes have not reached are errors."""

import operator
import re

LANES = 32
MASKS = {"32": (1 << 32) - 1, "64": (1 << 64) - 1}
COMPARE = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "ge": operator.ge}
BINARY = {"add": operator.add, "sub": operator.sub, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
          "shl": operator.lshift, "shr": operator.rshift}


class Kernel:
    def __init__(self, text, name):
        text = re.sub(r"//.*", "", text)
        head, body = re.search(r"\.entry " + name + r"\((.*?)\)(.*)", text, re.S).groups()
        self.parameters = re.findall(r"\.param \.u64 (\w+)", head)
        self.code, self.labels, self.declared = [], {}, set()
        for statement in re.findall(r"\w+:|[^;:{}]*(?:\{[^}]*\}[^;{}]*)*;", body[body.index("{") + 1:]):
            self.take(" ".join(statement.split()))

    def take(self, statement):
        if statement.endswith(":"):
            self.labels[statement[:-1]] = len(self.code)
        elif statement.startswith(".reg"):
            for name, count in re.findall(r"(%\w+)(?:<(\d+)>)?", statement):
                self.declared |= {f"{name}{i}" for i in range(int(count))} if count else {name}
        else:
            guard, words = re.fullmatch(r"(?:@(%\w+) )?([^;]+);", statement).groups()
            opcode, _, operands = words.partition(" ")
            self.code.append((guard, opcode.split("."), re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s]+", operands)))

    def launch(self, groups, threads, memory, *arguments):
        for group in range(groups):
            for first in range(0, threads, LANES):
                Warp(self, memory, dict(zip(self.parameters, arguments)), {
                    "%tid.x": list(range(first, first + LANES)), "%ctaid.x": [group] * LANES,
                    "%ntid.x": [threads] * LANES}).run()


class Memory:
    """Ranges of bytes at addresses that the caller chooses."""

    def __init__(self, **ranges):
        self.ranges = {int(at[1:], 16): content for at, content in ranges.items()}

    def find(self, address, size):
        for base, content in self.ranges.items():
            if base <= address and address + size <= base + len(content):
                return content, address - base
        raise AssertionError(f"{size} bytes at {address:#x}: no such memory")

    def load(self, address, size):
        assert address % size == 0, f"{size} bytes at {address:#x}: not aligned"
        content, at = self.find(address, size)
        return bytes(content[at:at + size])

    def store(self, address, data):
        assert address % len(data) == 0, f"{len(data)} bytes at {address:#x}: not aligned"
        content, at = self.find(address, len(data))
        content[at:at + len(data)] = data


class Warp:
    def __init__(self, kernel, memory, arguments, registers):
        self.kernel, self.memory, self.arguments = kernel, memory, arguments
        self.registers = registers
        self.at = [0] * LANES

    def run(self):
        """Always runs the lanes that are furthest behind."""
        end = len(self.kernel.code)
        while (now := min(self.at)) < end:
            lanes = [lane for lane in range(LANES) if self.at[lane] == now]
            guard, opcode, operands = self.kernel.code[now]
            for lane in lanes:
                self.at[lane] = now + 1
            if guard:
                lanes = [lane for lane in lanes if self.get(guard, lane)]
            if opcode[0] == "bra":
                for lane in lanes:
                    self.at[lane] = self.kernel.labels[operands[0]]
            elif opcode[0] == "ret":
                for lane in lanes:
                    self.at[lane] = end
            else:
                getattr(self, opcode[0])(opcode, operands, lanes)

    def get(self, operand, lane):
        if operand[0] != "%":
            return int(operand, 0)
        return self.registers[operand][lane]  # KeyError: read before it was written

    def put(self, operand, lane, value):
        assert operand in self.kernel.declared, operand
        self.registers.setdefault(operand, [None] * LANES)[lane] = value

    def each(self, operands, lanes, function):
        for lane in lanes:
            self.put(operands[0], lane, function(*(self.get(operand, lane) for operand in operands[1:])))

    def binary(self, opcode, operands, lanes):
        mask, operation = MASKS[opcode[1][1:]], BINARY[opcode[0]]
        self.each(operands, lanes, lambda a, b: operation(a, b) & mask)

    add = sub = shl = shr = binary

    def logic(self, opcode, operands, lanes):
        assert opcode[1][0] == "b", opcode
        self.binary(opcode, operands, lanes)

    def mov(self, opcode, operands, lanes):
        to, source = operands
        for lane in lanes:
            if to[0] == "{":
                low, high = to[1:-1].split(", ")
                value = self.get(source, lane)
                self.put(low, lane, value & MASKS["32"])
                self.put(high, lane, value >> 32)
            elif source[0] == "{":
                low, high = source[1:-1].split(", ")
                self.put(to, lane, self.get(low, lane) | self.get(high, lane) << 32)
            else:
                self.put(to, lane, self.get(source, lane) & MASKS[opcode[1][1:]])

    def cvt(self, opcode, operands, lanes):
        assert opcode == ["cvt", "u64", "u32"], opcode
        self.each(operands, lanes, lambda a: a)

    def cvta(self, opcode, operands, lanes):
        self.each(operands, lanes, lambda a: a)

    def neg(self, opcode, operands, lanes):
        self.each(operands, lanes, lambda a: -a & MASKS[opcode[1][1:]])

    def mul(self, opcode, operands, lanes):
        assert opcode in (["mul", "wide", "u32"], ["mul", "lo", "u64"]), opcode
        if opcode[1] == "wide":
            assert all(self.get(o, lane) <= MASKS["32"] for o in operands[1:] for lane in lanes)
        self.each(operands, lanes, lambda a, b: a * b & MASKS["64"])

    def mad(self, opcode, operands, lanes):
        assert opcode == ["mad", "lo", "u64"], opcode
        self.each(operands, lanes, lambda a, b, c: a * b + c & MASKS["64"])

    def setp(self, opcode, operands, lanes):
        assert opcode[2][0] == "u", opcode
        self.each(operands, lanes, COMPARE[opcode[1]])

    def selp(self, opcode, operands, lanes):
        self.each(operands, lanes, lambda a, b, which: a if which else b)

    def shfl(self, opcode, operands, lanes):
        to, source, index, *rest = operands
        assert opcode == ["shfl", "sync", "idx", "b32"] and [int(word, 0) for word in rest] == [31, MASKS["32"]], opcode
        assert len(lanes) == LANES, "a shuffle without all lanes"
        values = [self.get(source, self.get(index, lane) % LANES) for lane in lanes]
        for lane in lanes:
            self.put(to, lane, values[lane])

    def ld(self, opcode, operands, lanes):
        address, _, offset = operands[1][1:-1].partition(" + ")
        for lane in lanes:
            if opcode[1] == "param":
                self.put(operands[0], lane, self.arguments[address])
                continue
            assert opcode == ["ld", "global", "v2", "u64"], opcode
            data = self.memory.load(self.get(address, lane) + int(offset or 0), 16)
            for i, name in enumerate(operands[0][1:-1].split(", ")):
                self.put(name, lane, int.from_bytes(data[8 * i:8 * i + 8], "little"))

    def st(self, opcode, operands, lanes):
        assert opcode == ["st", "global", "u64"], opcode
        for lane in lanes:
            self.memory.store(self.get(operands[0][1:-1], lane), self.get(operands[1], lane).to_bytes(8, "little"))


for _name in ("and", "or", "xor"):  # two of the names are keywords of Python
    setattr(Warp, _name, Warp.logic)
