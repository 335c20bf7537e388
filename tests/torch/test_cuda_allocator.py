"""TestCudaAllocator: settings, limits, raw allocation, observers of out of memory."""

from __future__ import annotations

import random

import rig  # before torch
import torch

from rig import FACTS, GIB, MIB, TorchTestCase, instantiate, parametrize, set_allocator, stat


def next_division(size: int, divisions: int) -> int:
    """The size that roundup_power2_divisions rounds to."""
    power = 1
    while power < size:
        power *= 2
    if power == size:
        return power
    step = power // 2 // divisions
    return power // 2 + -(-(size - power // 2) // step) * step


@instantiate
class TestCudaAllocator(TorchTestCase):
    def _limit(self, size: int) -> None:
        """Lets the process reserve `size` bytes."""
        total = torch.cuda.mem_get_info()[1]
        self.assertEqual(torch.cuda.memory_reserved(), 0)
        fraction = size / total
        self.assertEqual(round(fraction * total), size)
        torch.cuda.memory.set_per_process_memory_fraction(fraction)

    def _alloc(self, mib: int) -> torch.Tensor:
        return torch.ones(mib * MIB, dtype=torch.int8, device="cuda")

    def test_max_split_expandable(self) -> None:
        self._limit(120 * MIB)
        kept = []
        for expandable in (False, True, False):
            set_allocator(f"expandable_segments:{expandable},max_split_size_mb:40")
            kept.append(self._alloc(40))
        with self.assertRaises(torch.OutOfMemoryError):
            self._alloc(40)
        kept.clear()
        self._alloc(120)  # gives back idle memory of both kinds

    def test_garbage_collect_expandable(self) -> None:
        self._limit(120 * MIB)
        kept = []
        for expandable in (False, True):
            set_allocator(f"expandable_segments:{expandable},garbage_collection_threshold:0.5")
            kept.append(self._alloc(40))
        kept.clear()
        self._alloc(80)  # collects, with idle memory of both kinds

    def test_allocator_settings(self) -> None:
        size, big = 4 * 21 * MIB, 4 * 100 * MIB

        def active_growth(bytes_: int) -> int:
            before = stat("active_bytes.all.allocated")
            requested = stat("requested_bytes.all.allocated")
            torch.empty(bytes_, dtype=torch.int8, device="cuda")
            self.assertEqual(stat("requested_bytes.all.allocated") - requested, bytes_)
            return stat("active_bytes.all.allocated") - before

        set_allocator("")
        self.assertEqual(active_growth(size), size)
        set_allocator("roundup_power2_divisions:4")
        torch.cuda.empty_cache()
        self.assertEqual(active_growth(size), next_division(size, 4))
        # A new text takes back the keys that it leaves out.
        set_allocator("garbage_collection_threshold:0.5")
        set_allocator("garbage_collection_threshold:0.5,max_split_size_mb:40")
        torch.cuda.empty_cache()
        self.assertEqual(active_growth(size), size)
        set_allocator("garbage_collection_threshold:0.5,"
                      "roundup_power2_divisions:[64:8,128:2,256:2,512:2,1024:1,>:1]")
        torch.cuda.empty_cache()
        self.assertEqual(active_growth(size), next_division(size, 8))
        torch.cuda.empty_cache()
        self.assertEqual(active_growth(big), next_division(big, 2))
        torch.cuda.empty_cache()
        set_allocator("release_lock_on_cudamalloc:True")
        self.assertEqual(active_growth(size), size)
        for wrong in ("foo:1,bar:2", "garbage_collection_threshold:1.2", "max_split_size_mb:2",
                      "release_lock_on_cudamalloc:none", "pinned_use_cuda_host_register:none",
                      "pinned_num_register_threads:none", "pinned_num_register_threads:1024"):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                set_allocator(wrong)

    def test_allocator_backend(self) -> None:
        # A settings text may name the backend; that of the process cannot change.
        code = "torch.cuda.init(); print(torch.cuda.get_allocator_backend())"
        backend = rig.script_output(code, conf="max_split_size_mb:20,backend:native")
        self.assertEqual(backend, "native")
        rig.script_output("torch.cuda.init(); rig.set_allocator('max_split_size_mb:40')",
                          conf="backend:native")

    def test_allocator_memory_fraction_setting(self) -> None:
        code = "print(torch.cuda.memory.get_per_process_memory_fraction(torch._C._cuda_getDevice()))"
        for fraction in ("0.0", "0.5"):
            self.assertEqual(
                rig.script_output(code, conf=f"per_process_memory_fraction:{fraction}"), fraction)
        done = rig.run_script(code, conf="per_process_memory_fraction:1.1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("per_process_memory_fraction is invalid", done.stderr)

    def test_cachingAllocator_raw_alloc(self) -> None:
        stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())

        def requested_growth() -> int:
            before = stat("requested_bytes.all.allocated")
            block = torch._C._cuda_cudaCachingAllocator_raw_alloc(MIB, stream)
            after = stat("requested_bytes.all.allocated")
            torch._C._cuda_cudaCachingAllocator_raw_delete(block)
            return after - before

        torch.cuda.caching_allocator_enable(False)
        try:
            self.assertEqual(requested_growth(), 0)
        finally:
            torch.cuda.caching_allocator_enable(True)
        self.assertEqual(requested_growth(), MIB)

    @parametrize("max_split_size_mb_setting", [False, True])
    def test_raises_oom(self, max_split_size_mb_setting: bool) -> None:
        if max_split_size_mb_setting:
            set_allocator("max_split_size_mb:1024")
            torch.cuda.memory.empty_cache()
        ooms = stat("num_ooms")
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            torch.empty(1024 * GIB, device="cuda")
        self.assertEqual(stat("num_ooms"), ooms + 1)

    def test_notifies_oom(self) -> None:
        # In a fresh process: an observer stays for ever.
        rig.script_output("""
seen = []
torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
try:
    torch.empty(1 << 40, device="cuda")
except torch.cuda.OutOfMemoryError:
    pass
((device, alloc, total, free),) = seen
assert (device, alloc) == (0, 4 << 40), seen
assert 0 < free <= total == 8 << 30, seen
""")

    def test_allocator_fuzz(self) -> None:
        # Each block holds its number while it lives: nobody else writes into it.
        seed = rig.test_seed()
        randomness = random.Random(seed)
        live: list[tuple[int, torch.Tensor]] = []
        total = 0
        for number in range(1000):
            action = randomness.choices(("alloc", "free", "empty"), (1, 1 if live else 0, 0.1))[0]
            while live and (total >= 100 * MIB or action == "free"):
                value, block = live.pop(randomness.randrange(len(live)))
                total -= block.nbytes
                self.assertEqual(block[-1].item(), value, f"seed {seed}")
                self.assertEqual(block[0].item(), value, f"seed {seed}")
                action = ""
            if action == "alloc":
                block = torch.empty(randomness.randrange(2 * MIB, 20 * MIB) // 4, dtype=torch.int32,
                                    device="cuda")
                mark = torch.tensor(number, dtype=torch.int32)
                block[0].copy_(mark)
                block[-1].copy_(mark)
                live.append((number, block))
                total += block.nbytes
            elif action == "empty":
                torch.cuda.memory.empty_cache()

    def test_no_caching(self) -> None:
        # PYTORCH_NO_CUDA_MEMORY_CACHING=1: each request is the driver's.
        rig.script_output("""
import device_control
before = device_control.call_count("cuMemAlloc"), device_control.call_count("cuMemFree")
for _ in range(3):
    torch.empty(1000, device="cuda")
torch.cuda.synchronize()
after = device_control.call_count("cuMemAlloc"), device_control.call_count("cuMemFree")
assert (after[0] - before[0], after[1] - before[1]) == (3, 3), (before, after)
assert torch.cuda.memory_allocated() == 0
""", PYTORCH_NO_CUDA_MEMORY_CACHING="1")

    def test_name(self) -> None:
        self.assertEqual(torch.cuda.get_allocator_backend() == "native", FACTS.name != "weir")


if __name__ == "__main__":
    rig.main()
