# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Tensors over torch.multiprocessing's queues by files, with a real torch on memory of the CPU: the fake library shares a
copy, and has no daemon that removes names."""

import errno
import gc
import os
import pickle
import time
import types
import unittest
import unittest.mock

from .support import Case

try:
    import torch
    from gpumem.run import _multiprocessing
    from gpumem.torch import _queues
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "no torch in this Python")
class Queues(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "simulated").mkdir(exist_ok=True)
        for name, value in (("_folder_of_gpu", lambda device: os.fspath(self.folder / "simulated")), ("_SWEEP", 1000),
                            ("_process", _queues._Process())):
            patch = unittest.mock.patch.object(_queues, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.senders = []
        self.addCleanup(self.close)

    def close(self):
        _queues._process.last = None
        gc.collect()
        for sender in self.senders:
            for shared in sender.files.values():
                shared.buffer.close()

    def names(self):
        """Of the sender's folder."""
        return sorted(os.listdir(self.senders[0].folder))

    def sent(self, tensor):
        function, arguments = _queues.reduce(tensor)
        self.senders[:1] = _queues._process.senders_alive()
        return pickle.dumps((function, arguments))

    def elsewhere(self):
        """As in another process."""
        _queues._process = _queues._Process()
        return self.senders[0]

    @staticmethod
    def received(message):
        function, arguments = pickle.loads(message)
        return function(*arguments)

    def test_messages(self):
        tensor = torch.arange(24.0).view(4, 6)
        messages = [self.sent(tensor[1:3, 2:4]), self.sent(tensor.t())]
        self.assertEqual(self.names(), ["0", "0.1", "0.2"])
        sender = self.elsewhere()
        part, turned = map(self.received, messages)
        self.assertTrue(torch.equal(part, tensor[1:3, 2:4]) and torch.equal(turned, tensor.t()))
        self.assertEqual((part.stride(), turned.stride()), ((6, 1), (1, 6)))
        self.assertEqual(self.names(), ["0", "0.1.received", "0.2.received"])
        part[0, 0] = 77
        self.assertEqual(turned[2, 1], 77)
        del part
        gc.collect()
        self.assertEqual(self.names(), ["0", "0.2.received"])
        self.assertTrue(_queues._sweep(sender))
        self.assertEqual([list(shared.messages) for shared in sender.files.values()], [["0.2"]])
        del turned
        gc.collect()
        self.assertEqual(self.names(), ["0"])
        self.assertFalse(_queues._sweep(sender))
        self.assertEqual(sender.files, {})

    def test_a_file_for_an_allocation(self):
        allocation = torch.arange(1000)
        begin, size = allocation.data_ptr(), 8000
        parts = [allocation[100:200].clone(), allocation[:3]]
        whole = _queues._Range(begin, size)
        self.assertTrue(whole.has(_queues._Range(begin + 8, 16)) and not whole.has(_queues._Range(begin + 7999, 2)))
        with unittest.mock.patch.object(_queues._cuda, "allocation", lambda address: (begin, size)):
            messages = [self.sent(part) for part in parts]
        self.elsewhere()
        self.assertEqual([self.received(message).tolist() for message in messages], [part.tolist() for part in parts])

    def test_kinds(self):
        parameter = torch.nn.Parameter(torch.ones(3))
        message = self.sent(parameter)
        self.elsewhere()
        found = self.received(message)
        self.assertIs(type(found), torch.nn.Parameter)
        self.assertTrue(found.requires_grad and torch.equal(found, parameter))

    def test_to_this_process(self):
        tensor = torch.arange(3)
        found = self.received(self.sent(tensor))
        self.assertEqual(found.data_ptr(), tensor.data_ptr())
        self.assertEqual(self.names(), ["0"])

    def test_the_producer_gives_up_by_itself(self):
        with unittest.mock.patch.object(_queues, "_SWEEP", 0.01):
            self.received(self.sent(torch.arange(3)))
            deadline = time.monotonic() + 20
            while self.senders[0].files and time.monotonic() < deadline:
                time.sleep(0.01)
        self.assertEqual(self.senders[0].files, {})

    def test_a_killed_consumer(self):
        message = self.sent(torch.arange(3))
        sender = self.elsewhere()
        found = self.received(message)
        inode = next(iter(sender.files.values())).buffer._file().identity.inode
        for access, left in (("rw", True), ("own", False)):
            status = {"leases": [{"inode": inode, "access": access}]}
            with unittest.mock.patch.object(_queues._status, "status", lambda path: status), \
                    unittest.mock.patch.object(_queues, "_DEAD_AFTER", -1):
                _queues._sweep(sender)
                self.assertEqual(_queues._sweep(sender), left)
        self.assertEqual(found.tolist(), [0, 1, 2])

    def test_a_message_under_way_is_kept(self):
        self.sent(torch.arange(3))
        with unittest.mock.patch.object(_queues._status, "status", lambda path: {"leases": []}), \
                unittest.mock.patch.object(_queues, "_DEAD_AFTER", -1):
            self.assertTrue(_queues._sweep(self.senders[0]))
        self.assertEqual(self.names(), ["0", "0.1"])

    def test_a_producer_that_has_ended(self):
        message = self.sent(torch.arange(3))
        self.elsewhere()
        for name in self.names():
            os.unlink(os.path.join(self.senders[0].folder, name))
        with self.assertRaises(OSError) as caught:
            self.received(message)
        self.assertEqual(caught.exception.errno, errno.ESTALE)

    def test_a_resized_storage(self):
        """The message under way is an error, and the file of the old memory is for no later message."""
        tensor = torch.arange(1000)
        message = self.sent(tensor)
        _queues._tensors.storage_of(tensor).resize_(0)
        _queues._sweep(self.senders[0])
        self.assertEqual(self.names(), ["0"])
        self.elsewhere()
        with self.assertRaises(OSError) as caught:
            self.received(message)
        self.assertEqual(caught.exception.errno, errno.ESTALE)

    def test_failures_of_a_sweep(self):
        """They end neither the thread nor what is kept."""
        self.sent(torch.arange(3))
        sender = self.elsewhere()
        with unittest.mock.patch.object(_queues, "_SWEEP", 0.01), \
                unittest.mock.patch.object(_queues, "_names", side_effect=[OSError(errno.EMFILE, "no"), {}]):
            _queues._sweep_until_empty(sender)
        self.assertEqual((sender.files, sender.thread), ({}, False))

    def test_a_folder_that_another_sender_removed(self):
        self.received(self.sent(torch.arange(3)))
        sender = self.senders[0]
        folder = sender.folder
        _queues._sweep(sender)
        for name in self.names():
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
        self.assertEqual(self.received(self.sent(torch.arange(4))).tolist(), [0, 1, 2, 3])
        self.assertNotEqual(sender.folder, folder)
        self.assertEqual(os.stat(sender.folder).st_mode & 0o777, 0o700)

    def test_places_that_programs_know(self):
        """Programs put another device there."""
        tensor = torch.arange(6).view(3, 2)[1:]
        function, arguments = _queues.reduce(tensor)
        self.senders[:1] = _queues._process.senders_alive()
        self.assertEqual(arguments[:4] + arguments[5:6], (torch.Tensor, (2, 2), (2, 1), 2, torch.int64))
        self.assertEqual(function(*arguments[:6], "GPU-0", *arguments[7:]).tolist(), [[2, 3], [4, 5]])

    def test_a_fork_of_the_consumer(self):
        message = self.sent(torch.arange(3))
        self.elsewhere()
        found = self.received(message)
        pid = os.fork()
        if pid == 0:
            del found
            gc.collect()
            os._exit(0)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(self.names(), ["0", "0.1.received"])
        self.assertEqual(found.tolist(), [0, 1, 2])

    def test_the_hook(self):
        """A failure is said once, and leaves the tensor to torch."""
        module, said = types.ModuleType("reductions"), []
        module.reduce_tensor = lambda tensor: "by torch"
        with unittest.mock.patch.object(_multiprocessing, "say", said.append), \
                unittest.mock.patch.object(_multiprocessing, "_is_for_files", lambda tensor: True), \
                unittest.mock.patch.object(_queues, "reduce", lambda tensor: "by a file"):
            _multiprocessing.change(module)
            self.assertEqual(module.reduce_tensor(torch.ones(1)), "by a file")
            for number, again in ((errno.ENOSPC, "by a file"), (errno.EPERM, "by torch")):
                with unittest.mock.patch.object(_queues, "reduce", side_effect=OSError(number, os.strerror(number))):
                    self.assertEqual([module.reduce_tensor(torch.ones(1)) for _ in range(2)], ["by torch"] * 2)
                self.assertEqual(module.reduce_tensor(torch.ones(1)), again)
        self.assertEqual(len(said), 2)

    def test_tensors_for_torch(self):
        self.assertFalse(_multiprocessing._is_for_files(torch.ones(1)))


if __name__ == "__main__":
    unittest.main()
