"""TestMultiprocessing: tensors and events that processes share."""

from __future__ import annotations

from typing import Any

import rig  # before torch
import torch
import torch.multiprocessing as multiprocessing

import ipc_workers
from rig import TorchTestCase

CONTEXT = multiprocessing.get_context("spawn")


def start(work: Any, *arguments: Any) -> Any:
    process = CONTEXT.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


class TestMultiprocessing(TorchTestCase):
    def tearDown(self) -> None:
        torch.cuda.ipc_collect()
        super().tearDown()

    def join(self, process: Any) -> None:
        process.join(60)
        self.assertEqual(process.exitcode, 0)

    def test_cuda_simple(self) -> None:
        queue, done = CONTEXT.Queue(), CONTEXT.Event()
        tensor = torch.zeros(5, 5).cuda()
        queue.put([tensor, tensor[:, 1]])
        child = start(ipc_workers.fill, queue, done)
        self.assertTrue(done.wait(60))
        self.assertEqual(tensor.cpu().unique().tolist(), [4])
        self.join(child)

        done.clear()
        child = start(ipc_workers.send, queue, done)
        first, second = queue.get(timeout=60), queue.get(timeout=60)
        self.assertEqual(first.cpu().unique().tolist(), [1])
        self.assertEqual(first.data_ptr(), second.data_ptr())  # one import, not two
        del first, second
        done.set()
        self.join(child)

    def test_cuda_memory_allocation(self) -> None:
        queue, done = CONTEXT.Queue(), CONTEXT.Event()
        child = start(ipc_workers.send_and_delete, queue, done, 5, 5)
        tensors = [queue.get(timeout=60) for _ in range(5)]
        self.assertEqual([t.tolist() for t in tensors], [[n] * 5 for n in range(5)])
        del tensors
        done.set()
        self.join(child)

    def test_cuda_send_many(self, count: int = 300) -> None:
        queues = [CONTEXT.Queue() for _ in range(3)]
        done = CONTEXT.Event()
        children = [start(ipc_workers.send_and_delete, queues[0], done, count, 5),
                    start(ipc_workers.receive_and_forward, queues[0], queues[1], done, count),
                    start(ipc_workers.receive_and_sum, queues[1], queues[2], count)]
        self.assertEqual(queues[2].get(timeout=100), count * (count - 1) // 2)
        done.set()
        for child in children:
            self.join(child)

    def test_cuda_ipc_deadlock(self) -> None:
        # A queue of one element, filled and drained at once.
        queue, done = CONTEXT.Queue(1), CONTEXT.Event()
        child = start(ipc_workers.send_and_delete, queue, done, 50, 5)
        for number in range(50):
            self.assertEqual(queue.get(timeout=60)[0].item(), number)
        done.set()
        self.join(child)

    def test_cuda_small_tensors(self) -> None:
        # Many tensors in one segment, of two devices.
        tensors = [torch.arange(i * 5.0, (i + 1) * 5).cuda(i % 2) for i in range(5)]
        source, target = CONTEXT.Queue(), CONTEXT.Queue()
        source.put(tensors)
        child = start(ipc_workers.sum_each, source, target)
        self.assertEqual(target.get(timeout=60), [(25 * i + 10, i % 2, 5) for i in range(5)])
        self.join(child)

    def _share_variable(self, variable: torch.Tensor, is_parameter: bool) -> None:
        queue, ready, modified = CONTEXT.Queue(), CONTEXT.Event(), CONTEXT.Event()
        child = start(ipc_workers.change_parameter, queue, ready, modified, is_parameter)
        queue.put(variable)
        self.assertTrue(ready.wait(60))
        variable.data[0, 0].copy_(torch.tensor(1000.0))
        torch.cuda.synchronize()
        modified.set()
        self.assertTrue(queue.get(timeout=60))
        self.assertEqual(variable.data.cpu().unique().tolist(), [1])
        self.join(child)

    def test_cuda_variable_sharing(self) -> None:
        self._share_variable(torch.arange(1.0, 26).view(5, 5).cuda().requires_grad_(True), False)

    def test_cuda_parameter_sharing(self) -> None:
        self._share_variable(torch.nn.Parameter(torch.arange(1.0, 26).view(5, 5).cuda()), True)

    def test_mixed_types_cuda_sharing(self) -> None:
        queue, taken = CONTEXT.Queue(), CONTEXT.Event()
        child = start(ipc_workers.send_mixed, queue, taken, 5)
        for _ in range(5):
            floats, bytes_ = queue.get(timeout=60), queue.get(timeout=60)
            self.assertEqual(floats.cpu().unique().tolist(), [1])
            self.assertEqual(bytes_.cpu().unique().tolist(), [0])
            del floats, bytes_
            taken.set()
        self.join(child)

    def test_rebuild_cuda_tensor(self) -> None:
        queue, done = CONTEXT.Queue(), CONTEXT.Event()
        child = start(ipc_workers.send_storages, queue, done)
        tensors = [multiprocessing.reductions.rebuild_cuda_tensor(**p) for p in queue.get(timeout=60)]
        self.assertEqual([t.tolist() for t in tensors], [[1], [1]])
        del tensors
        done.set()
        self.join(child)

    def test_empty_tensor_sharing_cuda(self) -> None:
        queue = multiprocessing.Queue()
        for dtype in (torch.float32, torch.int64):
            empty = torch.tensor([], dtype=dtype, device="cuda")
            queue.put(empty)
            got = queue.get(timeout=60)
            self.assertEqual((got.shape, got.dtype, got.device), (empty.shape, dtype, empty.device))

    def test_event_multiprocess(self) -> None:
        event = torch.cuda.Event(enable_timing=False, interprocess=True)
        self.assertTrue(event.query())
        self._record_for_child(ipc_workers.wait_for_event, event, event)

    def test_event_handle_importer(self) -> None:
        event = torch.cuda.Event(enable_timing=False, interprocess=True)
        self._record_for_child(ipc_workers.wait_for_handle, event, event.ipc_handle())

    def _record_for_child(self, work: Any, event: torch.cuda.Event, given: Any) -> None:
        to_child, from_child = CONTEXT.SimpleQueue(), CONTEXT.SimpleQueue()
        child = start(work, given, to_child, from_child)
        self.assertEqual(from_child.get(), "ready")
        event.record()
        torch.cuda.synchronize()
        to_child.put("recorded")
        self.assertEqual(from_child.get(), "synchronized")
        self.assertTrue(event.query())
        to_child.put("end")
        self.join(child)

    def test_event_handle_exporter(self) -> None:
        event = torch.cuda.Event(enable_timing=False, interprocess=True)
        to_child, from_child = CONTEXT.SimpleQueue(), CONTEXT.SimpleQueue()
        child = start(ipc_workers.record_handle, event.ipc_handle(), to_child, from_child)
        self.assertEqual(from_child.get(), "recorded")
        event.synchronize()
        self.assertTrue(event.query())
        to_child.put("end")
        self.join(child)

    def test_event_handle_multi_gpu(self) -> None:
        with torch.cuda.device(0):
            events = [torch.cuda.Event(enable_timing=False, interprocess=True) for _ in range(2)]
            events[1].record(torch.cuda.Stream())
        with torch.cuda.device(1):
            for event in events:  # made, and recorded, on the other device
                self.assertEqual(len(event.ipc_handle()), 64)

    def test_wrong_cuda_fork(self) -> None:
        done = rig.run_script("""
import multiprocessing
torch.rand(20, 2).cuda()
child = multiprocessing.get_context("fork").Process(target=torch.cuda.set_device, args=(0,))
child.start()
child.join()
""")
        self.assertIn("Cannot re-initialize CUDA in forked subprocess", done.stderr)

    def test_cuda_bad_call(self) -> None:
        # A forked child that allocates gets PyTorch's error.
        torch.zeros(5, 5).cuda()
        context = multiprocessing.get_context("fork")
        errors = context.SimpleQueue()

        def work() -> None:
            try:
                torch.zeros(5, 5).cuda()
                errors.put(None)
            except RuntimeError as error:
                errors.put(str(error))

        child = context.Process(target=work)
        child.start()
        self.assertIn("Cannot re-initialize CUDA in forked subprocess", errors.get())
        child.join()

    def test_memory_is_free_when_both_sides_drop_it(self) -> None:
        queue, taken, done = CONTEXT.Queue(), CONTEXT.Queue(), CONTEXT.Event()
        tensor = torch.arange(1.0, 1 << 20).cuda()
        queue.put(tensor)
        child = start(ipc_workers.hold_until_told, queue, taken, done)
        self.assertEqual(taken.get(timeout=60), 1)
        del tensor
        torch.cuda.ipc_collect()
        self.assertGreater(torch.cuda.memory_allocated(), 0)  # the other process has it
        done.set()
        self.assertEqual(taken.get(timeout=60), "dropped")
        self.join(child)
        torch.cuda.ipc_collect()
        self.assertEqual(torch.cuda.memory_allocated(), 0)


if __name__ == "__main__":
    rig.main()
