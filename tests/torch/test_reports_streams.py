"""Public reports about memory that several streams, captures or threads use. Each test is the report in small: where
PyTorch 2.11 still fails, the test shows it; where it was mended, the rule is checked for all. The number after
`report` is that of reference/torch.md, section 5.
"""

from __future__ import annotations

import rig  # before torch
import torch

import device_control
from rig import MIB, ReportTestCase, set_allocator, stat


def states(size: int) -> list[str]:
    """The states of the blocks that were requested with this size."""
    return [b["state"] for s in torch.cuda.memory_snapshot() for b in s["blocks"]
            if b["requested_size"] == size]


class TestReports(ReportTestCase):
    def test_report_14_a_stream_that_does_not_advance_keeps_only_what_it_uses(self) -> None:
        # pytorch/pytorch#71616
        stuck, running = torch.cuda.Stream(), torch.cuda.Stream()
        with device_control.held(stuck):
            for stream in (stuck, running):
                tensor = torch.empty(MIB, device="cuda")
                with torch.cuda.stream(stream):
                    tensor.fill_(1)
                tensor.record_stream(stream)
                address = tensor.data_ptr()
                del tensor
            running.synchronize()
            again = torch.empty(MIB, device="cuda")
            self.assertEqual(again.data_ptr(), address)

    def test_report_15_bytes_that_wait_for_streams_are_shown_and_reused_as_soon_as_they_may(self) -> None:
        # pytorch/pytorch#147168
        main, gather = torch.cuda.current_stream(), torch.cuda.Stream()
        size = 64 * MIB + 4

        def layer() -> None:
            with torch.cuda.stream(gather):
                weights = torch.empty(size, dtype=torch.int8, device="cuda")
            main.wait_stream(gather)
            weights[:1].fill_(1)
            weights.record_stream(main)

        device_control.hold(main)
        for count in range(1, 4):
            layer()
            pending = stat("active_bytes.all.current") - stat("allocated_bytes.all.current")
            self.assertGreaterEqual(pending, count * size)
            self.assertEqual(states(size).count("active_pending_free"), count)
        device_control.release(main)
        main.synchronize()
        reserved = torch.cuda.memory_reserved()
        for _ in range(20):
            layer()
            main.synchronize()
        self.assertEqual(torch.cuda.memory_reserved(), reserved)

    def _freed_in_capture(self, pool: tuple[int, int], side: torch.cuda.Stream, size: int) -> None:
        """Captures an allocation that a second stream uses, and its free after they joined."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            tensor = torch.empty(size, dtype=torch.int8, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                tensor[:1].fill_(1)
            tensor.record_stream(side)
            torch.cuda.current_stream().wait_stream(side)
            del tensor
        self._graphs.append(graph)

    def test_report_16_memory_that_joined_streams_used_is_free_when_the_capture_ends(self) -> None:
        # pytorch/pytorch#155398, #175560
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self.addCleanup(self._graphs.clear)
        side = torch.cuda.Stream()
        for reuse in (True, False):
            set_allocator(f"graph_capture_record_stream_reuse:{reuse}")
            self._freed_in_capture(torch.cuda.graph_pool_handle(), side, 8 * MIB)
            self.assert_only_weir("active_pending_free" not in states(8 * MIB))

    def test_report_t16_a_free_inside_use_mem_pool_is_not_deferred(self) -> None:
        # No capture is under way, though native counts the pool's use as one.
        pool, side = torch.cuda.MemPool(), torch.cuda.Stream()
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.empty(8 * MIB, dtype=torch.int8, device="cuda")
            with torch.cuda.stream(side):
                tensor[:1].fill_(1)
            tensor.record_stream(side)
            address = tensor.data_ptr()
            del tensor
            torch.cuda.synchronize()
            again = torch.empty(8 * MIB, dtype=torch.int8, device="cuda")
            self.assert_only_weir(again.data_ptr() == address)

    def test_report_30_pinned_memory_is_reused_only_after_the_copy_from_it(self) -> None:
        # pytorch/pytorch#130785; and what is freed is used again, #97432, #124456
        target = torch.zeros(1000, device="cuda")
        stream = torch.cuda.current_stream()
        for use in range(3):
            source = torch.full((1000,), float(use)).pin_memory()
            address = source.data_ptr()
            with device_control.held(stream):
                target.copy_(source, non_blocking=True)
                del source
                other = torch.full((1000,), 99.0).pin_memory()
                self.assertNotEqual(other.data_ptr(), address)
            del other
            self.assertEqual(target.cpu().unique().tolist(), [use])
        before = torch.cuda.host_memory_stats()["num_host_alloc"]
        for _ in range(50):
            target.copy_(torch.ones(1000).pin_memory(), non_blocking=True)
            torch.cuda.synchronize()
        self.assertEqual(torch.cuda.host_memory_stats()["num_host_alloc"], before)

    def test_report_36_recording_history_does_not_deadlock_with_threads_that_allocate(self) -> None:
        # pytorch/pytorch#97833: Python frames need the interpreter's lock, frees may come without it.
        rig.script_output("""
import threading, time
end = time.monotonic() + 3
done = []

def allocate():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        while time.monotonic() < end:
            kept = [torch.empty(n * 1000 + 1, device="cuda") for n in range(20)]
            kept[0].record_stream(torch.cuda.default_stream())
            torch.ones(100, 100, device="cuda", requires_grad=True).clone().sum().backward()
    done.append(1)

threads = [threading.Thread(target=allocate, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
while time.monotonic() < end:
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=1000)
    torch.cuda.memory._snapshot()
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(None)
for thread in threads:
    thread.join(60)
assert len(done) == 4, done
""")


class TestPinnedReports(ReportTestCase):
    def test_report_29_pinned_memory_costs_little_more_than_was_asked_for(self) -> None:
        # pytorch/pytorch#95823, #150517
        size = 259 * MIB // 2
        before = torch.cuda.host_memory_stats()["allocated_bytes.current"]
        tensor = torch.empty(size, dtype=torch.int8, pin_memory=True)
        cost = torch.cuda.host_memory_stats()["allocated_bytes.current"] - before
        self.assert_only_weir(cost <= size + size // 4, f"{cost / MIB} MiB")
        self.assertGreaterEqual(cost, tensor.nbytes)


if __name__ == "__main__":
    rig.main()
