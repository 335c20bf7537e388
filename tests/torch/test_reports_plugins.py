"""Public reports about allocators that are plugged into PyTorch. Native is here PyTorch's own plug, its
CUDAPluggableAllocator, as other allocators use it; Weir is itself. The number after `report` is that of
reference/torch.md, section 5.
"""

from __future__ import annotations

import ctypes
import re
import unittest
from pathlib import Path

import rig  # before torch
import torch

import device_control
from rig import FACTS, MIB, ReportTestCase

SOURCE = device_control.test_library("libweir_torch_pool_source.so")
PLUGGED = f"""
if rig.FACTS.name != "weir":
    torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator({SOURCE!r}, "dummy_alloc", "dummy_free"))
"""


def virtual_functions(header: str, class_name: str) -> list[str]:
    """The virtual functions that the class declares, in order; a destructor takes two places."""
    text = (Path(torch.__file__).parent / "include" / header).read_text()
    text = re.sub(r"//[^\n]*|/\\*.*?\\*/", "", text, flags=re.S)
    found = re.search(r"(?:class|struct)(?:\s+\w+_API)?\s+" + class_name + r"\b[^;{]*\{", text)
    depth, end = 1, found.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    names = re.findall(r"\bvirtual\b[^;{(]*?(~?\w+)\s*\(", text[found.end():end])
    return [n for name in names for n in ([name] * 2 if name.startswith("~") else [name])]


CACHE_INFO = """
import ctypes, test_reports_plugins as reports
torch.empty(8 << 20, dtype=torch.int8, device="cuda")
names = [name for header, kind in (("c10/core/Allocator.h", "Allocator"),
                                   ("c10/core/CachingDeviceAllocator.h", "DeviceAllocator"),
                                   ("c10/cuda/CUDACachingAllocator.h", "CUDAAllocator"))
         for name in reports.virtual_functions(header, kind)]
allocator = ctypes.c_void_p.in_dll(
    ctypes.CDLL("libc10_cuda.so"), "_ZN3c104cuda20CUDACachingAllocator9allocatorE").value
table = ctypes.cast(allocator, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
def function(name, *types):
    return ctypes.CFUNCTYPE(*types)(table[names.index(name)])
assert function("isEnabled", ctypes.c_bool, ctypes.c_void_p)(allocator)
assert function("initialized", ctypes.c_bool, ctypes.c_void_p)(allocator)
largest = ctypes.c_size_t()
function("cacheInfo", None, ctypes.c_void_p, ctypes.c_int8, ctypes.POINTER(ctypes.c_size_t))(
    allocator, 0, largest)
print(largest.value >> 20)
"""


class TestReports(ReportTestCase):
    def assert_supported(self, code: str, missing: str) -> None:
        """The code works with Weir; PyTorch's plug says that it lacks `missing`."""
        done = rig.run_script(PLUGGED + code)
        if FACTS.name == "weir":
            self.assertEqual(done.returncode, 0, done.stderr)
        else:
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, f"does not yet support {missing}")

    def test_report_01_the_largest_cached_block_is_known(self) -> None:
        # pytorch/pytorch#98481: cudnn.benchmark asks for it before it tries algorithms.
        self.assert_supported(CACHE_INFO, "cacheInfo")
        largest = rig.script_output(CACHE_INFO)  # not plugged: native knows it
        self.assertGreaterEqual(int(largest), 8)

    def test_report_02_statistics_are_complete(self) -> None:
        # pytorch/pytorch#133281
        self.assert_supported("""
kept = torch.empty(1 << 20, device="cuda")
assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() == 4 << 20
del kept
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 0 <= torch.cuda.memory_reserved()
torch.cuda.reset_accumulated_memory_stats()
assert "Allocated memory" in torch.cuda.memory_summary()
torch.cuda.memory_snapshot()
""", "getDeviceStats")

    def test_report_03_cudagraph_trees_can_check_and_restore_a_pool(self) -> None:
        # pytorch/pytorch#163257
        self.assert_supported("""
import graph_pools
pool = torch.cuda.graph_pool_handle()
if rig.FACTS.name != "weir":
    torch._C._cuda_checkPoolLiveAllocations(0, pool, set())
graph, output = graph_pools.cudagraphify(lambda: torch.ones(4, device="cuda"), [], pool=pool)
assert torch._C._cuda_checkPoolLiveAllocations(0, pool, {output.data_ptr()})
assert not torch._C._cuda_checkPoolLiveAllocations(0, pool, set())
graph_pools.restore(graph_pools.checkpoint(pool))
""", "checkPoolLiveAllocations")

    def test_report_04_installing_too_late_is_one_clear_error(self) -> None:
        # pytorch/pytorch#140687
        change = "weir.enable(strict=True)" if FACTS.name == "weir" else PLUGGED.partition(":\n")[2].strip()
        done = rig.run_script(f"""
if {FACTS.name == "weir"}:
    import weir
torch.ones(1).cuda()
try:
    {change}
except RuntimeError as error:
    print(error)
print(torch.ones(1).cuda().item())
""", allocator="native")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith("1.0\n"))  # PyTorch goes on as it was
        self.assertIn("initialized", done.stdout)
        self.assert_only_weir(re.search(r"by <string>:\d+", done.stdout) is not None, done.stdout)

    def test_report_05_memory_is_freed_with_the_size_it_was_made_with(self) -> None:
        # pytorch/pytorch#153109: tensors shrink (unique_consecutive); blocks do not. Mended in 2.11.
        library = ctypes.CDLL(SOURCE)
        made, freed = (ctypes.c_size_t.in_dll(library, f"last_{w}_bytes") for w in ("alloc", "free"))
        source = torch.cuda.memory.CUDAPluggableAllocator(SOURCE, "dummy_alloc", "dummy_free")
        pool = torch.cuda.MemPool(source.allocator())
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.empty(30 * MIB, dtype=torch.int8, device="cuda")
        tensor.resize_(100)
        tensor.untyped_storage().resize_(100)
        del tensor, pool
        torch.cuda.empty_cache()
        self.assertGreaterEqual(made.value, 100)
        self.assertEqual(freed.value, made.value)

    def test_report_06_an_address_that_is_in_use_is_not_taken_twice(self) -> None:
        # pytorch/pytorch#142127
        outcome = rig.run_script("""
import ctypes
torch.cuda.init()
runtime, block = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
runtime.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(64 << 20))
alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(lambda *_: block.value)
free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(lambda *_: None)
source = torch._C._cuda_customAllocator(*(ctypes.cast(f, ctypes.c_void_p).value for f in (alloc, free)))
pool = torch.cuda.MemPool(source)
with torch.cuda.use_mem_pool(pool):
    first = torch.empty(24 << 20, dtype=torch.int8, device="cuda")
    try:
        second = torch.empty(24 << 20, dtype=torch.int8, device="cuda")
        print("twice" if first.data_ptr() == second.data_ptr() else "elsewhere")
        del second
    except RuntimeError as error:
        print("refused", error)
del first, pool
""").stdout
        self.assert_only_weir(outcome.startswith("refused"), outcome)

    def test_report_07_idle_segments_of_a_pool_go_back_to_their_source(self) -> None:
        # pytorch/pytorch#145168: mended in 2.11
        self._free_after("del tensor, pool")

    def test_report_08_a_tensor_that_outlives_its_pool_is_freed_by_the_pools_source(self) -> None:
        # pytorch/pytorch#146431: mended in 2.11
        self._free_after("del pool, source; del tensor; torch.cuda.empty_cache()")

    def _free_after(self, drop: str) -> None:
        self.assertEqual(rig.script_output(f"""
import ctypes
library = ctypes.CDLL({SOURCE!r})
source = torch.cuda.memory.CUDAPluggableAllocator({SOURCE!r}, "dummy_alloc", "dummy_free")
pool = torch.cuda.MemPool(source.allocator())
with torch.cuda.use_mem_pool(pool):
    tensor = torch.empty(30 << 20, dtype=torch.int8, device="cuda")
assert not ctypes.c_int.in_dll(library, "called_dummy_free").value
{drop}
print(ctypes.c_int.in_dll(library, "called_dummy_free").value)
"""), "321")

    @unittest.skipUnless(FACTS.name == "weir", "PyTorch's allocator shares this memory in another way")
    def test_report_26_descriptors_of_shared_memory_stay_open(self) -> None:
        # pytorch/pytorch#179220: receivers fetch them when they like.
        self.assertEqual(rig.script_output("""
import os, struct
tensor = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
first = tensor.untyped_storage()._share_cuda_()[1]
second = tensor.untyped_storage()._share_cuda_()[1]
assert first == second, "one export, however often it is shared"
assert first[:2] == b"\\x02e"
process, handle_bytes, count = struct.unpack_from("=i4xQQ", first, 2)
assert (process, handle_bytes * count) == (os.getpid(), 4 << 20)
torch.cuda.empty_cache()
descriptors = struct.unpack_from(f"={count}i", first, 26)
print(sum(os.path.exists(f"/proc/self/fd/{fd}") for fd in descriptors) == count)
"""), "True")

    def test_report_09_a_pools_own_source_serves_it_whatever_the_settings(self) -> None:
        # pytorch/pytorch#147851: mended in 2.11
        rig.script_output(f"""
source = torch.cuda.memory.CUDAPluggableAllocator({SOURCE!r}, "dummy_alloc", "dummy_free")
pool = torch.cuda.MemPool(source.allocator())
with torch.cuda.use_mem_pool(pool):
    inside = torch.empty(30 << 20, dtype=torch.int8, device="cuda")
outside = torch.empty(30 << 20, dtype=torch.int8, device="cuda")
(segment,) = pool.snapshot()
assert segment["address"] == inside.data_ptr() and not segment["is_expandable"], segment
""", conf="expandable_segments:True")

    def test_report_10_the_innermost_pool_serves(self) -> None:
        # pytorch/pytorch#161193: mended in 2.11
        pools = [torch.cuda.MemPool() for _ in range(2)]
        kept = []
        with torch.cuda.use_mem_pool(pools[0]):
            with torch.cuda.use_mem_pool(pools[1]):
                kept.append(torch.empty(MIB, device="cuda"))
            kept.append(torch.empty(MIB, device="cuda"))
        for pool, tensor in zip(pools, reversed(kept)):
            addresses = [b["address"] for s in pool.snapshot() for b in s["blocks"]
                         if b["state"] == "active_allocated"]
            self.assertEqual(addresses, [tensor.data_ptr()])


if __name__ == "__main__":
    rig.main()
