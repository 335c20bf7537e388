"""TestCuda: memory in use, limits, out of memory, pinned memory."""

from __future__ import annotations

import rig  # before torch
import torch

import device_control
from rig import FACTS, GIB, MIB, TorchTestCase


class TestCuda(TorchTestCase):
    def test_memory_allocation(self) -> None:
        before = torch.cuda.memory_allocated()
        block = torch.cuda.caching_allocator_alloc(1)
        try:
            self.assertGreater(torch.cuda.memory_allocated(), before)
        finally:
            torch.cuda.caching_allocator_delete(block)
        self.assertEqual(torch.cuda.memory_allocated(), before)

    def test_memory_stats(self) -> None:
        # torch.accelerator has its own way to the allocator (c10::GetAllocator).
        accelerator = torch.accelerator
        torch.empty(1, device="cuda")
        accelerator.empty_cache()
        accelerator.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        allocated, reserved = accelerator.memory_allocated(), accelerator.memory_reserved()
        self.assertEqual(accelerator.max_memory_allocated(), allocated)
        self.assertEqual(accelerator.max_memory_reserved(), reserved)
        active = accelerator.memory_stats()["active_bytes.all.current"]
        tensor = torch.empty(256, device="cuda")
        self.assertEqual(accelerator.memory_stats()["active_bytes.all.current"], active + 1024)
        self.assertEqual(accelerator.memory_stats()["active_bytes.all.freed"], 0)
        del tensor
        accelerator.empty_cache()
        stats = accelerator.memory_stats()
        self.assertEqual(stats["active_bytes.all.current"], active)
        self.assertEqual(stats["active_bytes.all.freed"], 1024)
        self.assertGreater(accelerator.max_memory_allocated(), allocated)
        accelerator.reset_peak_memory_stats()
        self.assertEqual(accelerator.max_memory_allocated(), allocated)
        self.assertEqual(accelerator.max_memory_reserved(), reserved)

    def test_memory_stats_has_every_documented_key(self) -> None:
        torch.empty(1, device="cuda")
        stats = torch.cuda.memory_stats()
        counted = ("active", "active_bytes", "allocated_bytes", "allocation", "inactive_split",
                   "inactive_split_bytes", "requested_bytes", "reserved_bytes", "segment")
        what = ("allocated", "current", "freed", "peak")
        expected = {f"{c}.{p}.{w}" for c in counted for p in ("all", "large_pool", "small_pool")
                    for w in what}
        expected |= {f"oversize_{c}.{w}" for c in ("allocations", "segments") for w in what}
        expected |= {"max_split_size", "num_alloc_retries", "num_device_alloc", "num_device_free",
                     "num_ooms", "num_sync_all_streams"}
        self.assertLessEqual(expected, stats.keys())
        summary = torch.cuda.memory_summary()
        for line in ("Allocated memory", "Active memory", "Requested memory", "GPU reserved memory",
                     "Non-releasable memory", "GPU reserved segments", "Oversize allocations"):
            self.assertIn(line, summary)

    def test_out_of_memory(self) -> None:
        tensor = torch.zeros(1024, device="cuda")
        with self.assertRaisesRegex(RuntimeError, "Tried to allocate 800000000.00 GiB. GPU 0 has a "
                                                  "total capacity of 8.00 GiB"):
            torch.empty(GIB * 800_000_000, dtype=torch.int8, device="cuda")
        with self.assertRaisesRegex(RuntimeError, "Tried to allocate more than 1EB memory"):
            torch.empty(GIB * 8_000_000_000, dtype=torch.int8, device="cuda")
        tensor.copy_(torch.ones(1024))
        self.assertTrue((tensor.cpu() == 1).all())  # what follows the error is not disturbed

    def test_out_of_memory_retry(self) -> None:
        size = torch.cuda.get_device_properties(0).total_memory // 2
        first = torch.empty(size, dtype=torch.int8, device="cuda")
        # Two halves leave nothing for the context's own use and the allocator's rounding.
        with device_control.other_process_bytes(64 * MIB):
            with self.assertRaisesRegex(RuntimeError, "Tried to allocate"):
                torch.empty(size, dtype=torch.int8, device="cuda")
            del first
            torch.empty(size, dtype=torch.int8, device="cuda")

    def test_set_per_process_memory_fraction(self) -> None:
        with self.assertRaisesRegex(TypeError, "Invalid type"):
            torch.cuda.set_per_process_memory_fraction(1)
        for wrong in (-0.1, 2.0):
            with self.assertRaisesRegex(ValueError, "Invalid fraction value"):
                torch.cuda.set_per_process_memory_fraction(wrong)
        tensor = torch.zeros(1024, device="cuda")
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(0.5, 0)
        size = int(total * 0.499) - torch.cuda.max_memory_reserved()
        torch.empty(size, dtype=torch.int8, device="cuda")
        torch.cuda.empty_cache()
        with self.assertRaisesRegex(RuntimeError, "out of memory"):
            torch.empty(total // 2, dtype=torch.int8, device="cuda")
        tensor.copy_(torch.ones(1024))
        self.assertTrue((tensor.cpu() == 1).all())

    def test_get_per_process_memory_fraction(self) -> None:
        for value in (1.0, 0.0, *map(float, torch.rand(3))):
            torch.cuda.set_per_process_memory_fraction(value)
            self.assertEqual(torch.cuda.get_per_process_memory_fraction(), value)

    def test_caching_allocator_record_stream_oom(self) -> None:
        stream = torch.cuda.Stream()
        size = 40 * MIB  # floats: the loop asks for twice the device
        with torch.cuda.stream(stream):
            sum_ = torch.empty(size, device="cuda")
        for _ in range(100):
            term = torch.empty(size, device="cuda")
            with torch.cuda.stream(stream):
                sum_ += term
            term.record_stream(stream)  # delays the reuse until the stream has done the addition
            del term

    def test_record_stream(self) -> None:
        source = torch.arange(1.0, 5).pin_memory()
        result = torch.empty(4, device="cuda")
        stream = torch.cuda.Stream()
        addresses = []

        def use() -> None:
            with torch.cuda.stream(stream):
                used = torch.empty(4, device="cuda")
                used.copy_(source, non_blocking=True)
                addresses.append(used.data_ptr())
            torch.cuda.current_stream().wait_stream(stream)
            used.record_stream(torch.cuda.current_stream())
            device_control.hold(torch.cuda.current_stream())
            result.copy_(used)

        use()
        with torch.cuda.stream(stream):
            other = torch.empty(4, device="cuda")
            self.assertNotEqual(other.data_ptr(), addresses[0], "reused while a copy reads it")
        device_control.release(torch.cuda.current_stream())
        self.assertEqual(result.tolist(), [1, 2, 3, 4])
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(stream):
            # Weir has other free memory at hand, and takes it as long as there is some.
            later = [torch.empty(4, device="cuda")]
            while not FACTS.reuses_at_once and later[-1].data_ptr() != addresses[0]:
                later.append(torch.empty(4, device="cuda"))
                self.assertLess(len(later), 100_000)
            self.assertEqual(later[-1].data_ptr(), addresses[0], "not reused once it is free")

    def test_record_stream_on_shifted_view(self) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            base = torch.empty(100, 2, device="cuda")
        view = base[:, 1]
        address = base.data_ptr()
        self.assertEqual(view.storage_offset(), 1)
        self.assertNotEqual(view.data_ptr(), address)
        device_control.hold(torch.cuda.current_stream())
        torch.cuda._sleep(1000)
        view.record_stream(torch.cuda.current_stream())
        del base, view
        with torch.cuda.stream(stream):
            self.assertNotEqual(torch.empty(100, 2, device="cuda").data_ptr(), address)
        device_control.release(torch.cuda.current_stream())

    def test_is_pinned_no_context(self) -> None:
        # is_pinned makes no context, so that a fork may still begin to use the device.
        self.assertEqual(FORKED.stdout.strip(), "1.0", FORKED.stderr)

    def test_cudart_register(self) -> None:
        tensor = torch.ones(20)
        self.assertFalse(tensor.is_pinned())
        runtime = torch.cuda.cudart()
        self.assertEqual(runtime.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0), 0)
        self.assertTrue(tensor.is_pinned())
        self.assertEqual(runtime.cudaHostUnregister(tensor.data_ptr()), 0)
        self.assertFalse(tensor.is_pinned())


# Without `rig`: it initializes CUDA to make Weir's or PyTorch's allocator what it is to be.
FORKED = rig.run_script("""
import multiprocessing

def work(pipe):
    try:
        torch.randn(10).is_pinned()
        pipe.send(torch.tensor([1.0]).to(torch.accelerator.current_accelerator())[0].item())
    except Exception as error:
        pipe.send(f"error: {error}")

torch.randn(10).is_pinned()
receiver, sender = multiprocessing.Pipe()
child = multiprocessing.get_context("fork").Process(target=work, args=(sender,))
child.start()
print(receiver.recv())
child.join()
""")


if __name__ == "__main__":
    rig.main()
