"""TestCuda: pinned host memory, its cache and its statistics."""

from __future__ import annotations

import rig  # before torch
import torch

import device_control
from rig import TorchTestCase

FIGURES = ("allocated_bytes", "allocations", "active_bytes", "active_requests")


class TestCuda(TorchTestCase):
    def test_host_memory_stats(self) -> None:
        # In a fresh process: what earlier tests pinned would be counted.
        rig.script_output("""
figures = ("allocated_bytes", "allocations", "active_bytes", "active_requests")
expected = {f"{f}.{w}": 0 for f in figures for w in ("allocated", "current", "freed", "peak")}
expected |= {"num_host_alloc": 0, "num_host_free": 0, "host_alloc_time.count": 0, "host_free_time.count": 0}

def check():
    stats = torch.cuda.host_memory_stats()
    assert {k: stats[k] for k in expected} == expected, (expected, stats)

def pinned(kib_of_floats, rounded_bytes):
    tensor = torch.ones(kib_of_floats * 1024, pin_memory=True)
    assert tensor.is_pinned()
    for what in ("allocated", "current", "peak"):
        for figure in figures:
            expected[f"{figure}.{what}"] += rounded_bytes if "bytes" in figure else 1
    expected["num_host_alloc"] += 1
    expected["host_alloc_time.count"] += 1
    check()
    return tensor

torch.cuda.init()
check()
a = pinned(10, 16 * 4096)  # powers of two
b = pinned(20, 32 * 4096)
torch._C._host_emptyCache()  # both are in use
check()
torch.cuda.reset_peak_host_memory_stats()
torch.cuda.reset_accumulated_host_memory_stats()
stats = torch.cuda.host_memory_stats()
assert stats["allocated_bytes.peak"] == stats["allocated_bytes.current"] == 48 * 4096, stats
assert stats["allocations.allocated"] == stats["num_host_alloc"] == 0, stats
""")

    def test_pinned_memory_empty_cache(self) -> None:
        for register in (True, False):
            rig.set_allocator(f"pinned_use_cuda_host_register:{register}")
            tensor = torch.ones(1 << 20, pin_memory=True)
            self.assertTrue(tensor.is_pinned())
            del tensor
            torch._C._host_emptyCache()
            self.assertEqual(torch.cuda.host_memory_stats()["allocated_bytes.current"], 0)

    def test_pinned_memory_use_background_threads(self) -> None:
        self.assertEqual(rig.script_output("""
rig.set_allocator("pinned_use_background_threads:True")
print(torch.ones(1 << 20, pin_memory=True).is_pinned())
"""), "True")

    def _with_cudaregister(self) -> None:
        rig.set_allocator("pinned_use_cuda_host_register:True,pinned_num_register_threads:8")
        self.assertFalse(torch.ones(20).is_pinned())
        for size in (1 << 21, 1 << 22):
            self.assertTrue(torch.ones(size).pin_memory().is_pinned())

    def test_pinned_memory_with_cudaregister(self) -> None:
        self._with_cudaregister()

    def test_pinned_memory_with_cudaregister_multithread(self) -> None:
        rig.run_threads(*[self._with_cudaregister] * 4)

    def test_caching_pinned_memory(self) -> None:
        tensor = torch.tensor([1.0]).pin_memory()
        address = tensor.data_ptr()
        del tensor
        tensor = torch.tensor([1.0]).pin_memory()
        self.assertEqual(tensor.data_ptr(), address, "allocation not reused")
        on_device = torch.zeros(1, device="cuda")
        with device_control.held(torch.cuda.current_stream()):
            on_device.copy_(tensor, non_blocking=True)
            del tensor
            other = torch.tensor([2.0]).pin_memory()
            self.assertNotEqual(other.data_ptr(), address, "allocation reused too soon")
        self.assertEqual(on_device.tolist(), [1])

    def test_copy_non_blocking(self) -> None:
        def check(target: torch.Tensor, source: torch.Tensor) -> None:
            event = torch.cuda.Event()
            target.copy_(source, non_blocking=True)
            event.record()
            event.synchronize()
            self.assertTrue(torch.equal(target.cpu(), source.cpu()))

        size = 1_000_000
        ones = torch.ones(size, dtype=torch.uint8)
        zeros = torch.zeros(size, dtype=torch.uint8)
        check(ones.cuda(), zeros.pin_memory())
        check(zeros.pin_memory(), ones.cuda())
        base = zeros.pin_memory()
        shifted = base[1:]  # its address is not the storage's
        self.assertTrue(shifted.is_pinned() and base.is_pinned())
        self.assertNotEqual(shifted.data_ptr(), base.data_ptr())
        self.assertEqual(shifted.untyped_storage().data_ptr(), base.untyped_storage().data_ptr())
        check(shifted, ones[1:].cuda())

    def test_noncontiguous_pinned_memory(self) -> None:
        matrix = torch.arange(10).view(2, 5)
        self.assertTrue(torch.equal(matrix.t(), matrix.t().pin_memory()))


if __name__ == "__main__":
    rig.main()
