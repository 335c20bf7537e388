"""Public reports about memory that is there and cannot be had. Each test is the report in small: PyTorch's allocator
fails or wastes as it says, Weir does not. The number after `report` is that of reference/torch.md, section 5.
"""

from __future__ import annotations

import rig  # before torch
import torch

import device_control
from rig import FACTS, GIB, MIB, ReportTestCase, set_allocator


def empty(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.int8, device="cuda")


def fits(size: int) -> bool:
    try:
        empty(size)
    except torch.OutOfMemoryError:
        return False
    return True


def shredded(pieces: int, size: int) -> list[torch.Tensor]:
    """Every second of `pieces` blocks in a row; the others are free."""
    empty(pieces * size)  # one segment, where segments are of that size
    blocks = [empty(size) for _ in range(pieces)]
    return blocks[::2]


class TestReports(ReportTestCase):
    def test_report_11_idle_memory_of_the_default_pool_serves_a_mem_pool(self) -> None:
        # pytorch/pytorch#159674
        empty(6 * GIB)
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            self.assert_only_weir(fits(6 * GIB))
        torch.cuda.empty_cache()

    def test_report_12_a_block_that_waits_for_an_event_is_found_by_the_request_that_waited(self) -> None:
        # pytorch/pytorch#189504
        empty(6 * GIB)
        waiting, kept = empty(3 * GIB), empty(3 * GIB)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(200):
                waiting[:1].fill_(1)
        waiting.record_stream(side)
        del waiting
        self.assert_only_weir(fits(3 * GIB))
        self.assertTrue(fits(3 * GIB), "the retry")
        del kept

    def test_report_17_idle_memory_of_one_stream_serves_another(self) -> None:
        # pytorch/pytorch#109863
        empty(GIB)
        with torch.cuda.stream(torch.cuda.Stream()):
            empty(GIB)
        self.assert_only_weir(torch.cuda.memory_reserved() < GIB + GIB // 4)

    def test_report_18_small_blocks_in_use_do_not_make_the_memory_between_them_unusable(self) -> None:
        # pytorch/pytorch#35901
        kept = shredded(100, 64 * MIB)
        self.assertEqual(torch.cuda.memory_allocated(), 50 * 64 * MIB)
        self.assert_only_weir(fits(4 * GIB))
        del kept

    def test_report_20_empty_cache_gives_back_what_lies_between_blocks_in_use(self) -> None:
        # pytorch/pytorch#46379, #69526
        kept = shredded(100, 64 * MIB)
        torch.cuda.empty_cache()
        in_use = torch.cuda.memory_allocated()
        self.assert_only_weir(device_control.used_bytes() <= in_use + in_use // 10)
        self.assertGreaterEqual(torch.cuda.memory_reserved(), in_use)
        del kept

    def test_report_24_physical_memory_that_moves_is_not_made_anew(self) -> None:
        # pytorch/pytorch#166116
        self.expandable_where_native()
        streams = [torch.cuda.Stream() for _ in range(2)]

        def turn() -> None:
            for stream in streams:  # one has no room unless the other's memory moves to it
                with torch.cuda.stream(stream):
                    empty(6 * GIB)

        turn()
        before = device_control.call_count("cuMemCreate")
        for _ in range(5):
            turn()
        made = device_control.call_count("cuMemCreate") - before
        self.assert_only_weir(made <= 2)

    def test_report_31_garbage_collection_works_without_a_memory_fraction(self) -> None:
        # pytorch/pytorch#106660
        reserved = int(rig.script_output("""
for mib in (1000, 1500, 2000, 2500):
    kept = torch.empty(mib << 20, dtype=torch.int8, device="cuda")
    torch.cuda.synchronize()
    del kept
print(torch.cuda.memory_reserved())
""", conf="garbage_collection_threshold:0.4"))
        self.assert_only_weir(reserved <= 0.4 * 8 * GIB)

    def test_report_32_a_memory_fraction_bounds_what_the_process_takes_from_the_device(self) -> None:
        # pytorch/pytorch#58466: whatever the streams and pools; native holds to it here, where the
        # context itself takes nothing.
        torch.cuda.set_per_process_memory_fraction(0.25)
        pool = torch.cuda.MemPool()
        kept = []
        for stream in [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]:
            with torch.cuda.stream(stream):
                for size in (100 * MIB, 7 * MIB, 600_000):
                    try:
                        for _ in range(10):
                            kept.append(empty(size))
                            with torch.cuda.use_mem_pool(pool):
                                kept.append(empty(size))
                    except torch.OutOfMemoryError:
                        pass
        self.assertGreater(torch.cuda.memory_allocated(), 1.9 * GIB)
        self.assertLessEqual(device_control.used_bytes(), 2 * GIB)
        kept.clear()


class TestReportsInFreshProcesses(ReportTestCase):
    """What breaks the process for good, so each has its own."""

    def test_report_22_a_failure_in_the_middle_of_a_mapping_changes_nothing(self) -> None:
        # pytorch/pytorch#188008
        outcomes = {}
        for entry in ("cuMemCreate", "cuMemMap", "cuMemSetAccess"):
            done = rig.run_script(f"""
import device_control
torch.empty(1, device="cuda")
for nth in (1, 2, 3):
    with device_control.fault("{entry}", nth):
        try:
            torch.empty(200 << 20, dtype=torch.int8, device="cuda")
        except RuntimeError:
            pass
    torch.cuda.empty_cache()
kept = torch.empty(3 << 30, dtype=torch.int8, device="cuda")
kept[-4:].copy_(torch.tensor([1, 2, 3, 4], dtype=torch.int8))
assert kept[-4:].tolist() == [1, 2, 3, 4]
del kept
torch.cuda.empty_cache()
assert device_control.used_bytes() <= 64 << 20, device_control.used_bytes()
""", conf=self.native_conf("expandable_segments:True"))
            outcomes[entry] = done.returncode == 0
        self.assert_only_weir(all(outcomes.values()), str(outcomes))

    def test_report_23_empty_cache_waits_for_the_work_of_devices_that_are_not_current(self) -> None:
        # pytorch/pytorch#196258
        done = rig.run_script("""
source = torch.empty(100 << 20, dtype=torch.int8, device="cuda:0")
target = torch.empty(100 << 20, dtype=torch.int8, device="cuda:0")
for _ in range(20):
    target.copy_(source)
del source, target
torch.cuda.set_device(1)
torch.cuda.empty_cache()
torch.cuda.synchronize(0)
""", conf=self.native_conf("expandable_segments:True"))
        self.assert_only_weir(done.returncode == 0, done.stderr)


if __name__ == "__main__":
    rig.main()
