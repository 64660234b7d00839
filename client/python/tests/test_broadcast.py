# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""gpumem.broadcast between threads that play ranks: pieces, checksums, partial files, failures, and slices."""

import errno
import fcntl
import os
import random
import stat
import threading
import unittest
import unittest.mock

from .support import Case
from gpumem import broadcast as gb
from gpumem.broadcast import _copy, _engine, _files, _pieces, _shard, _sums
from gpumem.broadcast.__main__ import main

try:
    import torch
    import gpumem.torch
except ImportError:
    torch = None

PIECE = 4096
RANKS = 3
DEFINED = 0x95b9431af4a6f190


class World:
    """What the threads share. fault: called with rank and number of each buffer that arrives, and the buffer."""

    def __init__(self, size, fault):
        self.size, self.barrier, self.slots = size, threading.Barrier(size), [None] * size
        self.fault = fault
        self.mail = {rank: [] for rank in range(size)}
        self.came = threading.Condition()

    def meet(self):
        try:
            self.barrier.wait()
        except threading.BrokenBarrierError:
            raise _engine.Lost("a rank was lost") from None


class ThreadEngine(_engine.Engine):
    name = "threads"

    def __init__(self, world, rank):
        self.world, self.rank, self.size, self.local_rank, self.number = world, rank, world.size, rank, 0

    def gather(self, item):
        self.world.slots[self.rank] = item
        self.world.meet()
        answers = list(self.world.slots)
        self.world.meet()
        return answers

    def wrap(self, memory):
        return memory

    def group(self, ranks, cuda):
        return ranks

    def start(self, group, buffer, root):
        if self.rank == root:
            for rank in group:
                if rank != root:
                    self.send(buffer, rank)
        return root, buffer

    def wait(self, work):
        root, buffer = work
        if self.rank != root:
            self.receive(buffer, root)

    def send(self, buffer, rank):
        with self.world.came:
            self.world.mail[rank].append(bytes(buffer))
            self.world.came.notify_all()

    def receive(self, buffer, rank):
        with self.world.came:
            self.world.came.wait_for(lambda: self.world.mail[self.rank] or self.world.barrier.broken, 20)
            if not self.world.mail[self.rank]:
                raise _engine.Lost("a rank was lost")
            content = bytearray(self.world.mail[self.rank].pop(0))
        if self.world.fault:
            self.world.fault(self.rank, self.number, content)
        self.number += 1
        buffer[:] = bytes(content)

    def close(self):
        pass


def in_ranks(function, fault=None):
    """Calls the function with an engine in each thread. The results; an exception takes the place of a result."""
    world, results = World(RANKS, fault), [None] * RANKS

    def rank_main(rank):
        try:
            results[rank] = function(ThreadEngine(world, rank))
        except gb.BroadcastError as error:
            results[rank] = error
        except Exception as error:
            results[rank] = error
            world.barrier.abort()
            with world.came:
                world.came.notify_all()

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class BroadcastCase(Case):
    def setUp(self):
        super().setUp()
        self.source = self.file("disk", random.Random(3).randbytes(10 * PIECE + 77), "source")
        self.content = self.source.read_bytes()

    def target(self, rank, folder="disk"):
        return self.folder / folder / f"copy{rank}"

    def partial(self, rank, folder="disk"):
        return self.folder / folder / f".copy{rank}.gpumem-part"

    def copy(self, folder="disk", fault=None, source=None, **options):
        path, dest = source or self.source, f"{self.folder}/{folder}/copy{{rank}}"
        return in_ranks(lambda engine: gb.broadcast(path, dest, piece=PIECE, engine=engine, **options), fault)

    def lose(self, at):
        """A broadcast in which rank 1 is lost with its piece of this number, after rank 2 has got all."""
        got_all = threading.Event()

        def fault(rank, number, content):
            if (rank, number) == (2, 10):
                got_all.set()
            if (rank, number) == (1, at):
                got_all.wait()
                raise _engine.Lost("killed")
        results = self.copy(fault=fault)
        self.assertTrue(all(isinstance(one, _engine.Lost) for one in results), results)
        return results

    def whole(self, results, folder="disk", sent=None, ranks=range(1, RANKS)):
        for result in results:
            self.assertIsInstance(result, gb.Report, results)
        for rank in ranks:
            self.assertEqual(self.target(rank, folder).read_bytes(), self.content)
            self.assertFalse(self.partial(rank, folder).exists())
        if sent is not None:
            self.assertEqual((results[0].sent, results[0].pieces), (sent, 11))

    def failed(self, results, *words):
        """All ranks raise the same line, which has the words."""
        self.assertEqual({type(one) for one in results}, {gb.BroadcastError}, results)
        self.assertEqual(len({str(one) for one in results}), 1)
        for word in words:
            self.assertIn(str(word), str(results[0]))
        self.assertNotIn("\n", str(results[0]))


class Sums(unittest.TestCase):
    def all_ways(self, content):
        """The sum in each way that this Python has."""
        found = {_sums.of(memoryview(content))}
        with unittest.mock.patch.object(_sums, "numpy", None):
            found.add(_sums.of(memoryview(content)))
        if torch is not None and content:
            found.add(_sums.of(torch.frombuffer(bytearray(content), dtype=torch.uint8)))
        self.assertEqual(len(found), 1)
        return found.pop()

    def test_all_ways_agree(self):
        some = random.Random(1)
        sums = {self.all_ways(some.randbytes(size)) for size in (0, 1, 3, 4, 4096, _sums.ROW - 1, _sums.ROW,
                                                                _sums.ROW + 1, 2 * _sums.ROW + 6)}
        self.assertEqual(len(sums), 9)
        self.assertTrue(all(0 <= one < 1 << 64 for one in sums))

    def test_the_definition_stays(self):
        """Ranks of two versions must agree."""
        self.assertEqual(self.all_ways(b"gpumem" * 100), DEFINED)

    def test_faults_are_found(self):
        content = random.Random(2).randbytes(3 * _sums.ROW)
        wanted = _sums.of(content)
        row = _sums.ROW
        wrong = [content[row:2 * row] + content[:row] + content[2 * row:],  # rows change their places
                 content[4:8] + content[:4] + content[8:],                  # words
                 content[:-1], content + b"\0", bytes(len(content))]
        for places in ((3,), (3, 7), (3, row + 3), (3, row + 3, 2 * row + 3), range(3, len(content), 8)):
            flipped = bytearray(content)
            for place in places:
                flipped[place] ^= 0x80  # the sign of a word
            wrong.append(bytes(flipped))
        for one in wrong:
            self.assertNotEqual(_sums.of(one), wanted)


class Planning(unittest.TestCase):
    def test_pieces_cover_the_file(self):
        for size in (0, 1, PIECE, PIECE + 1, 5 * PIECE - 1):
            pieces = _pieces.plan(size, PIECE)
            self.assertEqual([piece.begin for piece in pieces], [n * PIECE for n in range(len(pieces))])
            self.assertEqual(sum(piece.end - piece.begin for piece in pieces), size)
            self.assertTrue(all(0 < piece.end - piece.begin <= PIECE for piece in pieces))

    def test_sizes_of_pieces(self):
        for size in (0, 1, PIECE + 1, -PIECE, 2 << 30):
            with self.assertRaises(ValueError):
                _pieces.check_size(size)
        _pieces.check_size(1 << 30)

    def test_missing(self):
        self.assertEqual(_pieces.missing([1, 2, 3], None), {0, 1, 2})
        self.assertEqual(_pieces.missing([1, 2, 3], [1, 9, 3]), {1})

    def test_hostile_lists(self):
        for name in ("/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", "a\0b"):
            with self.assertRaises(ValueError):
                _files.check([_files.Entry(name, 1, 0o644)])
        _files.check([_files.Entry("", 1, 0o644), _files.Entry("a/..b", 1, 0o644)])

    def test_one_rank_writes_each_destination(self):
        self.assertEqual(_copy._writers(["a", "a", "b", "b", "c"], 0), [2, 4])
        self.assertEqual(_copy._writers(["a", "b", "b"], 2), [0])

    def test_slices(self):
        plans = [_shard.slice_plan("t", "float32", shape, dim, 4) for shape, dim in
                 (((8, 3), 0), ((8, 12), 1), ((7, 3), 0), ((8,), 1), ((), 0), ((0, 4), 0))]
        self.assertEqual([(plan.shape, plan.is_sliced) for plan in plans],
                         [((2, 3), True), ((8, 3), True), ((7, 3), False), ((8,), False), ((), False), ((0, 4), True)])


class Copies(BroadcastCase):
    def test_every_folder(self):
        """In place, and through buffers."""
        for folder in ("disk", "host", "simulated", "gpu0"):
            self.whole(self.copy(folder), folder, 11)
        source = self.file("simulated", self.content, "source")
        for rank in range(1, RANKS):
            self.target(rank).unlink()
        self.whole(self.copy(source=source), sent=11)

    def test_files_that_are_the_same_are_not_sent(self):
        self.whole(self.copy())
        inodes = [self.target(rank).stat().st_ino for rank in (1, 2)]
        self.whole(self.copy(), sent=0)
        self.assertEqual(inodes, [self.target(rank).stat().st_ino for rank in (1, 2)])

    def test_a_changed_file_is_replaced(self):
        """A file of the same size that differs in one piece is not changed in place."""
        self.whole(self.copy())
        with open(self.target(1), "r+b") as file:
            file.write(b"changed")
            file.flush()
            self.whole(self.copy(), sent=11)
            self.assertEqual(os.pread(file.fileno(), 7, 0), b"changed")

    def test_permissions(self):
        self.source.chmod(0o751)
        self.target(2).write_bytes(b"old")
        self.target(2).chmod(0o604)
        self.whole(self.copy())
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual([stat.S_IMODE(self.target(rank).stat().st_mode) for rank in (1, 2)], [0o751 & ~mask, 0o604])

    def test_links_stay(self):
        self.target(1).symlink_to(self.folder / "disk" / "behind")
        self.whole(self.copy())
        self.assertTrue(self.target(1).is_symlink())

    def test_directories(self):
        folder = self.folder / "disk" / "model"
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "a.safetensors").write_bytes(self.content)
        (folder / "config.json").symlink_to(self.source)
        (folder / "empty").touch()
        (folder / ".secret").touch()
        results = self.copy(source=folder)
        self.assertEqual((results[0].files, results[0].copies), (3, 6))
        for rank in (1, 2):
            found = sorted(str(path.relative_to(self.target(rank))) for path in self.target(rank).rglob("*"))
            self.assertEqual(found, ["config.json", "empty", "sub", "sub/a.safetensors"])
            self.assertEqual((self.target(rank) / "config.json").read_bytes(), self.content)

    def test_another_root_and_shared_destinations(self):
        self.whole(self.copy(root=2), ranks=(0, 1), sent=11)
        results = in_ranks(lambda engine: gb.broadcast(self.source, self.folder / "host", piece=PIECE, engine=engine))
        self.assertEqual(results[0].copies, 1)
        self.assertEqual((self.folder / "host" / "source").read_bytes(), self.content)
        results = in_ranks(lambda engine: gb.broadcast(self.source, piece=PIECE, engine=engine))
        self.assertEqual((results[0].copies, results[0].sent), (0, 0))


class Resuming(BroadcastCase):
    def test_only_missing_pieces_are_sent(self):
        self.target(2).write_bytes(b"old")
        self.lose(7)
        self.assertEqual(self.target(2).read_bytes(), b"old")
        self.assertFalse(self.target(1).exists())
        self.assertEqual(stat.S_IMODE(self.partial(1).stat().st_mode), 0o600)
        results = self.copy()
        self.whole(results)
        self.assertEqual(results[0].sent, 11 - 7)

    def test_a_damaged_partial_is_repaired(self):
        self.lose(8)
        with open(self.partial(1), "r+b") as file:
            file.seek(2 * PIECE)
            file.write(b"damaged")
        self.whole(self.copy())

    def test_a_changed_source(self):
        self.lose(8)
        self.content = self.content[:PIECE] + b"x" * PIECE + self.content[2 * PIECE:]
        self.source.write_bytes(self.content)
        self.whole(self.copy())
        self.lose_nothing_of_another_size()

    def lose_nothing_of_another_size(self):
        self.content += b"more"
        self.source.write_bytes(self.content)
        self.partial(1).write_bytes(b"of another size")
        self.whole(self.copy(), sent=11)


class Hostile(BroadcastCase):
    def refused(self, *words):
        self.failed(self.copy(), "rank 1", self.partial(1), *words)
        self.assertFalse(self.target(1).exists())
        self.assertFalse(self.target(2).exists())
        self.assertFalse(self.partial(2).exists())

    def test_links(self):
        victim = self.file("disk", b"mine", "victim")
        self.partial(1).symlink_to(victim)
        self.refused("remove it")
        self.partial(1).unlink()
        os.link(victim, self.partial(1))
        self.refused("remove it")
        self.assertEqual(victim.read_bytes(), b"mine")

    def test_other_kinds(self):
        os.mkfifo(self.partial(1))
        self.refused()
        self.partial(1).unlink()
        self.partial(1).mkdir()
        self.refused("Is a directory")

    @unittest.skipIf(os.geteuid(), "needs root")
    def test_a_file_of_another_user(self):
        self.partial(1).write_bytes(self.content)
        os.chown(self.partial(1), 1234, -1)
        self.refused("remove it")

    def model(self):
        """A directory with a file in a directory, which the ranks copy."""
        folder = self.folder / "disk" / "model"
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "file").write_bytes(self.content)
        victim = self.folder / "disk" / "victim"
        victim.mkdir()
        (victim / "file").write_bytes(b"mine")
        return folder, victim

    def test_links_below_the_destination(self):
        """A link in the place of a directory is refused, and one in the place of a file is replaced."""
        folder, victim = self.model()
        self.target(1).mkdir()
        (self.target(1) / "sub").symlink_to(victim)
        self.failed(self.copy(source=folder), "rank 1", self.target(1) / "sub", "Not a directory")
        self.assertEqual([path.name for path in victim.iterdir()], ["file"])
        (self.target(1) / "sub").unlink()
        (self.target(1) / "sub").mkdir()
        (self.target(1) / "sub" / "file").symlink_to(victim / "file")
        self.assertIsInstance(self.copy(source=folder)[0], gb.Report)
        self.assertEqual((victim / "file").read_bytes(), b"mine")
        self.assertEqual((self.target(1) / "sub" / "file").read_bytes(), self.content)

    def test_a_directory_that_becomes_a_link(self):
        folder, victim = self.model()
        moved = self.folder / "disk" / "moved"

        def fault(rank, number, content):
            if (rank, number) == (1, 5):
                (self.target(1) / "sub").rename(moved)
                (self.target(1) / "sub").symlink_to(victim)
                (victim / ".file.gpumem-part").write_bytes(b"theirs")
        self.assertIsInstance(self.copy(source=folder, fault=fault)[0], gb.Report)
        self.assertEqual((victim / "file").read_bytes(), b"mine")
        self.assertEqual((moved / "file").read_bytes(), self.content)

    @unittest.skipIf(os.geteuid(), "needs root")
    def test_names_where_all_users_may_make_names(self):
        folder, victim = self.model()
        shared = self.folder / "disk" / "shared"
        shared.mkdir()
        shared.chmod(0o1777)

        def copy(source, dest):
            return in_ranks(lambda engine: gb.broadcast(source, dest, piece=PIECE, engine=engine))
        for name, leads_to in (("link", victim), ("file", victim / "file")):
            (shared / name).symlink_to(leads_to)
            os.chown(shared / name, 1234, 1234, follow_symlinks=False)
            source = folder if name == "link" else self.source
            self.failed(copy(source, shared / name), "rank 1", shared / name, "a link of another user")
        self.assertEqual([path.name for path in victim.iterdir()], ["file"])
        self.assertEqual((victim / "file").read_bytes(), b"mine")
        (shared / "sub").mkdir()
        os.chown(shared / "sub", 1234, 1234)
        self.failed(copy(folder, shared), "rank 1", shared / "sub", "a directory of another user")
        # The mode of a file that another user has made is not kept.
        (shared / "ahead").write_bytes(self.content)
        (shared / "ahead").chmod(0o666)
        os.chown(shared / "ahead", 1234, 1234)
        self.source.chmod(0o600)
        self.assertIsInstance(copy(self.source, shared / "ahead")[0], gb.Report)
        found = (shared / "ahead").stat()
        self.assertEqual((found.st_uid, stat.S_IMODE(found.st_mode)), (0, 0o600))

    def test_a_partial_file_that_was_not_private(self):
        """Another user may have it open."""
        self.partial(1).write_bytes(b"")
        self.partial(1).chmod(0o644)
        with open(self.partial(1), "rb") as theirs:
            self.whole(self.copy())
            self.assertEqual(theirs.read(), b"")

    def test_a_second_writer(self):
        with open(self.partial(1), "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.refused("another process is writing")
        self.whole(self.copy())

    def test_a_directory_in_the_way(self):
        self.target(1).mkdir()
        (self.target(1) / "source").mkdir()
        self.failed(self.copy(), "rank 1", self.target(1) / "source", "not a regular file")


class Failures(BroadcastCase):
    def test_bytes_that_change_on_their_way(self):
        def fault(rank, number, content):
            if (rank, number) == (2, 4):
                content[100] ^= 1
        self.failed(self.copy(fault=fault), "rank 2", self.partial(2), "bytes changed on their way")
        self.assertFalse(self.target(1).exists() or self.target(2).exists())
        self.whole(self.copy(), sent=1)

    def test_a_rank_that_cannot_write(self):
        store = _files.Bytes.store

        def fail(content, number, begin, end):
            if content.name == str(self.partial(2)) and begin == 5 * PIECE:
                raise OSError(errno.ENOSPC, "No space left on device", content.name)
            return store(content, number, begin, end)

        with unittest.mock.patch.object(_files.Bytes, "store", fail):
            self.failed(self.copy(), "rank 2", self.partial(2), "No space left")
        self.assertFalse(self.target(1).exists() or self.target(2).exists())
        results = self.copy()
        self.whole(results)
        self.assertLess(results[0].sent, 11)

    def test_no_room(self):
        with unittest.mock.patch.object(os, "posix_fallocate", side_effect=OSError(errno.EDQUOT, "quota")):
            self.failed(self.copy(), "rank 1", self.target(1), "no room for")
        self.assertEqual(os.listdir(self.folder / "disk"), ["source"])

    def test_a_source_that_cannot_be_read(self):
        preadv, wanted = os.preadv, self.source.stat().st_ino

        def fail(fd, buffers, offset, *rest):
            if os.fstat(fd).st_ino == wanted and offset == 6 * PIECE:
                raise OSError(errno.EIO, "Input/output error")
            return preadv(fd, buffers, offset, *rest)

        with unittest.mock.patch.object(os, "preadv", fail):
            self.failed(self.copy(), "rank 0", self.source, "Input/output error")
        self.assertFalse(self.target(1).exists() or self.target(2).exists())

    def test_a_source_that_changes(self):
        def fault(rank, number, content):
            if (rank, number) == (1, 10):
                os.utime(self.source, ns=(1, 1))
        self.failed(self.copy(fault=fault), "rank 0", self.source, "changed during the broadcast")
        self.assertFalse(self.target(1).exists() or self.target(2).exists())

    def test_wrong_paths(self):
        before = sorted([*os.listdir(self.folder / "disk"), "pipe"])
        self.failed(self.copy(source=self.folder / "none"), "rank 0", "No such file")
        self.failed(self.copy(source=self.folder / "host"), "contains no files")
        os.mkfifo(self.folder / "disk" / "pipe")
        self.failed(self.copy(source=self.folder / "disk" / "pipe"), "not a regular file")
        results = in_ranks(lambda engine: gb.broadcast(self.source, f"{self.folder}/none{{rank}}/", engine=engine))
        self.failed(results, "rank 1", "not a directory")
        self.assertTrue(all(isinstance(one, ValueError) for one in self.copy(root=9)))
        results = in_ranks(lambda engine: gb.broadcast(self.source, f"{self.folder}/disk/b{{rnk}}", engine=engine))
        for one in results:
            self.assertIsInstance(one, ValueError)
            self.assertIn("{rnk} stands for no number, only {rank} and {local_rank}", str(one))
        self.assertEqual(sorted(os.listdir(self.folder / "disk")), before)


class Command(unittest.TestCase):
    def fails(self, *words):
        with self.assertRaises(SystemExit) as raised, unittest.mock.patch("sys.stderr"):
            main(list(words))
        self.assertEqual(raised.exception.code, 2)

    def test_arguments(self):
        self.fails()
        self.fails("a", "--piece", "much")
        self.fails("a", "--shard")
        self.fails("a", "--engine", "pigeon")

    def test_no_launcher(self):
        for name in ("RANK", "PMI_RANK", "PMIX_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"):
            self.assertNotIn(name, os.environ)
        with unittest.mock.patch("sys.stderr") as said:
            self.assertEqual(main(["a"]), 2)
        self.assertIn("torchrun", "".join(str(call) for call in said.write.call_args_list))


@unittest.skipIf(torch is None, "no torch in this Python")
class Shards(BroadcastCase):
    def setUp(self):
        super().setUp()
        self.tensors = {"rows": torch.arange(60.0).reshape(6, 10), "odd": torch.arange(8).reshape(4, 2),
                        "half": torch.ones(3, dtype=torch.bfloat16), "none": torch.zeros(0, 3), "one": torch.tensor(7)}
        self.path = self.folder / "simulated" / "set.safetensors"
        gpumem.torch.save_file(self.tensors, self.path, {"format": "pt"})

    def shard(self, dest="slice{rank}", **options):
        path = f"{self.folder}/simulated/{dest}"
        return in_ranks(lambda engine: gb.shard(self.path, path, piece=PIECE, engine=engine, **options))

    def slices(self, rank):
        return gpumem.torch.load_file(self.folder / "simulated" / f"slice{rank}", mode="copy")

    def test_slices(self):
        for dim in (0, 1):
            results = self.shard(dim=dim)
            self.assertIsInstance(results[0], gb.ShardReport, results)
            for rank in range(RANKS):
                for name, got in self.slices(rank).items():
                    whole = self.tensors[name]
                    sliced = dim < whole.dim() and whole.shape[dim] % RANKS == 0
                    wanted = torch.tensor_split(whole, RANKS, dim)[rank] if sliced else whole
                    self.assertTrue(torch.equal(got, wanted), (dim, rank, name))
                with gpumem.torch.safe_open(self.folder / "simulated" / f"slice{rank}") as file:
                    self.assertEqual(file.metadata(), {"format": "pt", "gpumem_shard": f"{rank}/3",
                                                       "gpumem_shard_dim": str(dim)})
        self.assertEqual((results[0].sliced, results[0].whole), (1, 4))

    def test_failures(self):
        self.failed(self.shard("same"), "have the same destination")
        self.failed(self.shard("nowhere/slice{rank}"), "No such file")
        def fault(rank, number, content):
            if rank == 1 and number == 1:
                content[0] ^= 1
        path = f"{self.folder}/simulated/x{{rank}}"
        results = in_ranks(lambda engine: gb.shard(self.path, path, engine=engine), fault)
        self.failed(results, "rank 1", "bytes changed")
        self.assertEqual(list((self.folder / "simulated").glob("x*")), [])
        self.path.write_bytes(b"no safetensors")
        self.failed(self.shard(), "rank 0", self.path)


if __name__ == "__main__":
    unittest.main()
