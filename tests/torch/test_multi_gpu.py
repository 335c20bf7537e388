"""TestCudaMultiGPU: statistics against snapshots, with one device and two; memory of one on the other."""

from __future__ import annotations

import collections
import random
import unittest
from collections.abc import Iterator

import rig  # before torch
import torch

import device_control
from rig import MIB, TorchTestCase, stat


def expected_stats() -> dict[int, dict[str, int]]:
    """The statistics of each device that its snapshot implies."""
    expected: dict[int, dict[str, int]] = collections.defaultdict(lambda: collections.defaultdict(int))
    for segment in torch.cuda.memory_snapshot():
        def add(key: str, value: int, segment: dict = segment) -> None:
            for pool in ("all", segment["segment_type"] + "_pool"):
                expected[segment["device"]][f"{key}.{pool}.current"] += value

        blocks = segment["blocks"]
        whole = not segment["is_expandable"]
        add("segment", whole)
        add("allocated_bytes", segment["allocated_size"])
        add("reserved_bytes", segment["total_size"])
        add("active_bytes", segment["active_size"])
        add("requested_bytes", segment["requested_size"])
        for block in blocks:
            add("allocation", block["state"] == "active_allocated")
            add("active", block["state"].startswith("active_"))
            idle_part = block["state"] == "inactive" and len(blocks) > 1 and whole
            add("inactive_split", idle_part)
            add("inactive_split_bytes", block["size"] if idle_part else 0)
        requested = sum(b["requested_size"] for b in blocks if b["state"].startswith("active_"))
        assert requested == segment["requested_size"], segment
    return expected


class TestCudaMultiGPU(TorchTestCase):
    def assert_stats_match_snapshot(self) -> None:
        for device, expected in expected_stats().items():
            stats = torch.cuda.memory_stats(device)
            self.assertEqual({key: stats[key] for key in expected}, dict(expected))

    def steps(self, device: torch.device, count: int = 35) -> Iterator[None]:
        """Allocates and frees, and after each step checks how the figures moved."""
        allocated, max_allocated = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
        reserved, max_reserved = torch.cuda.memory_reserved(device), torch.cuda.max_memory_reserved(device)
        begin = allocated

        def moved(sign: int, empty_cache: bool = False, reset_peak: bool = False) -> None:
            nonlocal allocated, max_allocated, reserved, max_reserved
            now, now_max = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
            self.assertEqual((now > allocated) - (now < allocated), (sign > 0) - (sign < 0))
            self.assertLessEqual(now, now_max)
            self.assertGreaterEqual(now_max, max_allocated)
            allocated, max_allocated = now, now_max
            now, now_max = torch.cuda.memory_reserved(device), torch.cuda.max_memory_reserved(device)
            self.assertLessEqual(now, now_max)
            self.assertGreaterEqual(now_max, max_reserved)
            reserved, max_reserved = now, now_max
            if empty_cache:
                keys = ("num_sync_all_streams", "num_device_alloc", "num_device_free")
                before = [stat(key, device.index) for key in keys]
                torch.cuda.empty_cache()
                after = [stat(key, device.index) for key in keys]
                self.assertEqual(after[0], before[0] + 1)
                self.assertGreaterEqual(after[1:], before[1:])
                self.assertGreaterEqual(before[1], 1 if allocated else 0)
                self.assertLessEqual(torch.cuda.memory_reserved(device), reserved)
                self.assertEqual(torch.cuda.max_memory_reserved(device), max_reserved)
                reserved = torch.cuda.memory_reserved(device)
            if reset_peak:
                torch.cuda.reset_peak_memory_stats(device)
                self.assertEqual(torch.cuda.memory_allocated(device), allocated)
                self.assertEqual(torch.cuda.max_memory_allocated(device), allocated)
                self.assertEqual(torch.cuda.memory_reserved(device), reserved)
                self.assertEqual(torch.cuda.max_memory_reserved(device), reserved)
                max_allocated, max_reserved = allocated, reserved

        def alloc(*shape: int) -> torch.Tensor:
            return torch.empty(*shape, device=device)

        for options in ({}, {"reset_peak": True}, {"empty_cache": True}, {"reset_peak": True}, {}):
            moved(0, **options)
        yield
        first = [alloc(1), alloc(10, 20), alloc(200, 300, 2000)]
        after_first = torch.cuda.memory_allocated(device)
        moved(1)
        yield
        tensors = []
        for i in range(1, count // 2 + 1):
            tensors.append(alloc(i, i * 4))
            moved(1)
            yield
        for i in range(5, count // 2 + 5):
            tensors.append(alloc(i, i * 7, i * 9, i * 11))
            moved(1, reset_peak=i % 2 == 0)
            yield
        tensors.append(alloc(0, 0, 0))
        moved(0)
        yield
        random.Random(7).shuffle(tensors)
        moved(0, reset_peak=True)
        yield
        for _ in range(count // 2):
            freed = tensors.pop(0).numel()
            moved(-freed)
            yield
        for i in range(2, 2 * count // 3 + 2):
            tensors.append(alloc(i, i * 3, i * 8))
            moved(1)
            yield
        del tensors
        moved(-1, reset_peak=True)
        moved(0)
        self.assertEqual(torch.cuda.memory_allocated(device), after_first)
        yield
        del first
        moved(-1, reset_peak=True)
        self.assertEqual(torch.cuda.memory_allocated(device), begin)
        moved(0, empty_cache=True)
        moved(0, reset_peak=True)

    def test_memory_stats(self) -> None:
        for _ in self.steps(torch.device("cuda:0")):
            self.assert_stats_match_snapshot()

    def test_memory_stats_multigpu(self) -> None:
        end = object()
        randomness = random.Random(3)
        for turns in (lambda: 1, lambda: randomness.randrange(3)):
            rig.settle()
            first, second = self.steps(torch.device("cuda:0")), self.steps(torch.device("cuda:1"))
            while next(first, end) is not end:
                for _ in range(turns()):
                    next(second, end)
            self.assert_stats_match_snapshot()
            for _ in second:
                pass

    def test_cuda_device_memory_allocated(self) -> None:
        before = [torch.cuda.memory_allocated(d) for d in range(2)]
        _tensor = torch.ones(10, device="cuda:0")
        self.assertGreater(torch.cuda.memory_allocated(0), before[0])
        self.assertEqual(torch.cuda.memory_allocated(torch.cuda.device(1)), before[1])

    def test_mem_get_info(self) -> None:
        size = 8 * MIB
        for index in (0, 1):
            device = torch.device(f"cuda:{index}")
            torch.cuda.synchronize(device)
            free, total = torch.cuda.mem_get_info(device)
            tensor = torch.empty(size, dtype=torch.uint8, device=device)
            after, same_total = torch.cuda.mem_get_info(device)
            self.assertEqual(total, same_total)
            self.assertGreaterEqual(free - after, size)
            with torch.cuda.device(device):
                self.assertEqual(torch.cuda.mem_get_info(), (after, total))
            del tensor

    def test_caching_pinned_memory_multi_gpu(self) -> None:
        source = torch.tensor([1.0]).pin_memory()
        address = source.data_ptr()
        targets = [torch.zeros(1, device=f"cuda:{d}") for d in range(2)]
        with torch.cuda.device(1), device_control.held(torch.cuda.current_stream(1)):
            targets[1].copy_(source, non_blocking=True)
            del source
            source = torch.tensor([2.0]).pin_memory()
            self.assertNotEqual(source.data_ptr(), address, "reused while device 1 copies")
            with torch.cuda.device(0):
                targets[0].copy_(source, non_blocking=True)
        self.assertEqual([t.item() for t in targets], [2, 1])

    def test_copy_device(self) -> None:
        source = torch.arange(5.0).cuda(0)
        on_other = source.cuda(1)
        self.assertEqual((on_other.get_device(), on_other.tolist()), (1, [0, 1, 2, 3, 4]))
        back = on_other.cuda(0)
        self.assertEqual((back.get_device(), back.tolist()), (0, [0, 1, 2, 3, 4]))
        self.assertTrue(torch.cuda.can_device_access_peer(0, 1))

    def test_cuda_memory_leak_detection(self) -> None:
        try:
            from torch.testing._internal.common_utils import CudaMemoryLeakCheck
        except ImportError as error:
            raise unittest.SkipTest(f"PyTorch's own harness needs {error.name}") from error
        leaked = []
        for device in range(2):
            with self.assertRaisesRegex(RuntimeError, f"CUDA driver API confirmed .+ on device {device}.+"):
                with CudaMemoryLeakCheck(self):
                    leaked.append(torch.randn(8 * MIB, device=f"cuda:{device}"))
            leaked.clear()
        with CudaMemoryLeakCheck(self):
            torch.randn(8 * MIB, device="cuda:0")


if __name__ == "__main__":
    rig.main()
