"""TestCudaTrace and TestMemoryProfiler: what tools that watch the allocator get to see."""

from __future__ import annotations

from typing import Any

import rig  # before torch
import torch

from rig import MIB, TorchTestCase


class TestCudaTrace(TorchTestCase):
    """Each in a fresh process: tracing stays on."""

    def _traced(self, what: str) -> None:
        rig.script_output(f"""
import torch.cuda._gpu_trace as gpu_trace
torch.cuda.init()
torch.empty(1, device="cuda")
torch._C._activate_gpu_trace()
seen = []
gpu_trace.register_callback_for_memory_{what}(seen.append)
tensor = torch.empty(10, 4, device="cuda")
address = tensor.data_ptr()
block = torch.cuda.caching_allocator_alloc(1000)
assert seen == ([address, block] if "{what}" == "allocation" else []), seen
del tensor
torch.cuda.caching_allocator_delete(block)
assert seen == [address, block], seen
""")

    def test_memory_allocation_callback(self) -> None:
        self._traced("allocation")

    def test_memory_deallocation_callback(self) -> None:
        self._traced("deallocation")


class TestMemoryProfiler(TorchTestCase):
    def test_memory_events(self) -> None:
        with torch.profiler.profile(profile_memory=True) as profile:
            kept = torch.empty(MIB, dtype=torch.int8, device="cuda")
            torch.empty(3 * MIB, dtype=torch.int8, device="cuda")
            del kept
        changes = [(event.name, event.device_memory_usage) for event in profile.events()
                   if event.device_memory_usage != 0]
        self.assertEqual(sorted(changes), [("[memory]", -3 * MIB), ("[memory]", -MIB),
                                           ("aten::empty", MIB), ("aten::empty", 3 * MIB)])
        totals = [e.extra_fields.total_allocated for e in all_events(profile) if e.name == "[memory]"]
        self.assertEqual(sorted(totals)[-2:], [MIB, 4 * MIB])

    def test_out_of_memory_event(self) -> None:
        with torch.profiler.profile(profile_memory=True) as profile:
            with self.assertRaises(torch.OutOfMemoryError):
                torch.empty(1 << 40, device="cuda")
        names = [event.name for event in all_events(profile)]
        self.assertEqual(names.count("[OutOfMemory]"), 1)


def all_events(profile: torch.profiler.profile) -> list[Any]:
    found = list(profile.profiler.kineto_results.experimental_event_tree())
    for event in found:
        found.extend(event.children)
    return found


if __name__ == "__main__":
    rig.main()
