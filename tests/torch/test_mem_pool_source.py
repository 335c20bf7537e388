"""TestMemPool: pools whose memory comes from an allocator of the program (pool_source.c in place of load_inline)."""

from __future__ import annotations

import ctypes

import rig  # before torch
import torch

import device_control
from rig import FACTS, MIB, TorchTestCase, set_allocator

FLOATS = MIB // 4
SOURCE = device_control.test_library("libweir_torch_pool_source.so")


def plain_source() -> torch.cuda.memory.CUDAPluggableAllocator:
    return torch.cuda.memory.CUDAPluggableAllocator(SOURCE, "dummy_alloc", "dummy_free")


class TestMemPool(TorchTestCase):
    def setUp(self) -> None:
        super().setUp()
        library = ctypes.CDLL(SOURCE)
        self.called_alloc = ctypes.c_int.in_dll(library, "called_dummy_alloc")
        self.called_free = ctypes.c_int.in_dll(library, "called_dummy_free")
        self.called_alloc.value = self.called_free.value = 0

    def _limit(self, mib: int) -> None:
        """Lets the process reserve so many MiB more."""
        allowed = mib * MIB + torch.cuda.memory_reserved()
        torch.cuda.memory.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info()[1])

    def assert_called(self, alloc: int, free: int) -> None:
        self.assertEqual((self.called_alloc.value, self.called_free.value), (alloc, free))

    def test_mempool_empty_cache_inactive(self) -> None:
        allocator = plain_source()

        def outlives_its_pool() -> torch.Tensor:
            pool = torch.cuda.MemPool(allocator.allocator())
            with torch.cuda.use_mem_pool(pool):
                return torch.arange(2 * MIB, device="cuda")

        self.assert_called(0, 0)
        tensor = outlives_its_pool()
        self.assert_called(123, 0)
        del tensor
        torch.cuda.empty_cache()
        self.assert_called(123, 321)

    def test_mempool_with_allocator(self) -> None:
        allocator = plain_source()
        pool = torch.cuda.MemPool(allocator.allocator())
        self.assertEqual(pool.use_count(), 1)
        self.assert_called(0, 0)
        with torch.cuda.use_mem_pool(pool):
            kept = [torch.randn(FLOATS, device="cuda")]
            self.assertEqual(pool.use_count(), 2)
        self.assertEqual(pool.use_count(), 1)
        self.assert_called(123, 0)
        kept.append(torch.empty(FLOATS, device="cuda"))  # outside
        with torch.cuda.use_mem_pool(pool):
            # Each MiB takes half of a segment of 2 MiB.
            for expected in (1, 2):
                self.assertEqual(len(pool.snapshot()), 1)
                kept.append(torch.randn(FLOATS, device="cuda"))
                self.assertEqual(len(pool.snapshot()), expected)
        self.assertEqual(len(pool.snapshot()), 2)
        kept.clear()
        del pool
        self.assert_called(123, 321)

    def test_tensor_delete_after_allocator_delete(self) -> None:
        allocator = plain_source()
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.empty(4, device="cuda")
        self.assert_called(123, 0)
        del pool, allocator  # the memory keeps what must free it
        self.assert_called(123, 0)
        del tensor
        torch.cuda.empty_cache()
        self.assert_called(123, 321)

    def test_mempool_limited_memory_with_allocator(self) -> None:
        allocator = plain_source()
        private = torch.cuda.MemPool(allocator.allocator())
        shared = torch.cuda.MemPool(allocator.allocator(), use_on_oom=True)
        self._limit(80)
        with torch.cuda.use_mem_pool(private):
            a = torch.randn(40 * FLOATS, device="cuda")
        with torch.cuda.use_mem_pool(shared):
            b = torch.randn(40 * FLOATS, device="cuda")
        address = b.data_ptr()
        with self.assertRaises(torch.OutOfMemoryError):
            torch.randn(40 * FLOATS, device="cuda")
        del a, b
        c = torch.randn(30 * FLOATS, device="cuda")  # from the pool that allows it
        self.assertEqual(c.data_ptr(), address)
        with self.assertRaises(torch.OutOfMemoryError):
            torch.randn(30 * FLOATS, device="cuda")  # the other does not
        del c
        with torch.cuda.use_mem_pool(shared):
            e = torch.randn(20 * FLOATS, device="cuda")
        self.assertEqual(e.data_ptr(), address)

    def test_deleted_mempool_not_used_on_oom(self) -> None:
        allocator = plain_source()
        self._limit(40)
        for _ in range(10):
            pool = torch.cuda.MemPool(allocator.allocator(), use_on_oom=True)
            with torch.cuda.use_mem_pool(pool):
                torch.randn(40 * FLOATS, device="cuda")
            del pool
        pool = torch.cuda.MemPool(allocator.allocator(), use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            a = torch.randn(40 * FLOATS, device="cuda")
        (segment,) = pool.snapshot()
        del a
        for tensor in [torch.randn(20 * FLOATS, device="cuda") for _ in range(2)]:
            self.assertIn(tensor.data_ptr() - segment["address"], range(40 * MIB))
        del tensor

    def test_mempool_expandable(self) -> None:
        set_allocator("expandable_segments:True")
        pool = torch.cuda.MemPool(plain_source().allocator())
        with torch.cuda.use_mem_pool(pool):
            _inside = torch.empty(FLOATS, device="cuda")
        _outside = torch.empty(FLOATS, device="cuda")
        segments = torch.cuda.memory.memory_snapshot()
        self.assertEqual(len(segments), 2)
        (inside,) = [s for s in segments if s["segment_pool_id"] == pool.id]
        self.assertFalse(inside["is_expandable"])  # it came from the program
        if FACTS.name != "weir":
            self.assertEqual(sum(s["is_expandable"] for s in segments), 1)

    def test_nccl_mem_alloc_addresses_in_random_order(self) -> None:
        # As communication libraries hand it out: each stream from its own end of one range. A second
        # round of the same requests must get the same addresses, whatever their order in memory.
        alloc_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        free_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        runtime, range_ = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
        torch.cuda.init()
        self.assertEqual(runtime.cudaMalloc(ctypes.byref(range_), ctypes.c_size_t(1 << 30)), 0)
        self.addCleanup(runtime.cudaFree, range_)
        ends = {"low": range_.value, "high": range_.value + (1 << 30)}
        streams = [torch.cuda.Stream() for _ in range(2)]
        given = []

        def alloc(size: int, _device: int, stream: int | None) -> int:
            if stream == streams[0].cuda_stream:
                given.append(ends["low"])
                ends["low"] += size
            else:
                ends["high"] -= size
                given.append(ends["high"])
            return given[-1]

        c_alloc, c_free = alloc_type(alloc), free_type(lambda *_: None)
        source = torch._C._cuda_customAllocator(
            *(ctypes.cast(function, ctypes.c_void_p).value for function in (c_alloc, c_free)))
        pool = torch.cuda.MemPool(source)

        def addresses() -> list[int]:
            kept = []
            with torch.cuda.use_mem_pool(pool):
                for _ in range(3):
                    for stream, sizes in zip(streams, ((24, 32), (32, 24))):
                        with torch.cuda.stream(stream):
                            kept += [torch.empty(s * MIB, dtype=torch.uint8, device="cuda") for s in sizes]
            return [tensor.data_ptr() for tensor in kept]

        first = addresses()
        self.assertEqual(first, given)
        self.assertEqual(addresses(), first)
        self.assertEqual(len(pool.snapshot()), 12)


if __name__ == "__main__":
    rig.main()
