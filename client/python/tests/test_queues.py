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
                            ("_senders", _queues._Senders()), ("_kept", None)):
            patch = unittest.mock.patch.object(_queues, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.senders = []
        self.addCleanup(self.close)

    def close(self):
        _queues._kept = None
        gc.collect()
        for sender in self.senders:
            for shared in sender.files:
                shared.buffer.close()

    def names(self):
        """Of the sender's folder."""
        return sorted(os.listdir(self.senders[0].folder))

    def sent(self, tensor):
        function, arguments = _queues.reduce(tensor)
        self.senders[:1] = _queues._senders.by_device.values()
        return pickle.dumps((function, arguments))

    def elsewhere(self):
        """As in another process."""
        _queues._senders = _queues._Senders()
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
        self.assertEqual(list(sender.files[0].storages), ["0.2"])
        del turned
        gc.collect()
        self.assertEqual(self.names(), ["0"])
        self.assertFalse(_queues._sweep(sender))
        self.assertEqual(sender.files, [])

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
        self.assertEqual(self.senders[0].files, [])

    def test_a_killed_consumer(self):
        message = self.sent(torch.arange(3))
        sender = self.elsewhere()
        found = self.received(message)
        for sharers, left in (([unittest.mock.Mock(access="rw")], True), ([unittest.mock.Mock(access="own")], False)):
            with unittest.mock.patch.object(_queues._status, "sharers", lambda path: sharers), \
                    unittest.mock.patch.object(_queues, "_DEAD_AFTER", -1):
                _queues._sweep(sender)
                self.assertEqual(_queues._sweep(sender), left)
        self.assertEqual(found.tolist(), [0, 1, 2])

    def test_a_message_under_way_is_kept(self):
        self.sent(torch.arange(3))
        with unittest.mock.patch.object(_queues._status, "sharers", lambda path: []), \
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
