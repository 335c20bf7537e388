"""TestCudaAllocator: snapshots, the history of allocations, and what PyTorch's viewer makes of them."""

from __future__ import annotations

import ctypes
import gc
import json
import pickle
import random

import rig  # before torch
import torch
from torch.cuda._memory_viz import _profile_to_snapshot, profile_plot, segment_plot, segments, trace_plot

from rig import TorchTestCase, memory_history

ODD = (311, 411)  # a shape that nothing else has
ODD_BYTES = 311 * 411 * 4


def blocks_of_size(size: int) -> list[dict]:
    return [b for s in torch.cuda.memory._snapshot()["segments"] for b in s["blocks"] if b["requested_size"] == size]


class TestCudaAllocator(TorchTestCase):
    def test_memory_snapshot(self) -> None:
        with memory_history("state", stacks="python"):
            torch.rand(2 * 311, 411, device="cuda")
            unused = torch.rand(310, 410, device="cuda")
            odd = torch.rand(*ODD, device="cuda")  # not the first block of its segment
            small = [torch.rand(128, device="cuda") for _ in range(1000)]  # 512 bytes: they tile a segment
            randomness = random.Random(1)
            while small:
                del small[randomness.randrange(len(small))]
            torch.rand(128 * 5, device="cuda")
            snapshot = torch.cuda.memory._snapshot()
            found = False
            for segment in snapshot["segments"]:
                self.assertIn("frames", segment)
                for block in segment["blocks"]:
                    if block["requested_size"] == ODD_BYTES:
                        found = True
                        self.assertIn("test_cuda", block["frames"][0]["filename"])
                        self.assertEqual(block["address"], odd.untyped_storage().data_ptr())
            self.assertTrue(found)
            # _save_segment_usage, without the drawing program that it would download.
            self.assertIn("test_cuda_history.py", segments(snapshot, format_flamegraph=lambda text: text))
            del unused, odd
            torch.cuda.empty_cache()
            last = torch.cuda.memory._snapshot()["device_traces"][0][-1]
            self.assertIn(last["action"], ("segment_free", "segment_unmap"))

    def test_memory_snapshot_with_cpp(self) -> None:
        with memory_history("state", stacks="all"):
            _odd = torch.rand(*ODD, device="cuda")
            (block,) = blocks_of_size(ODD_BYTES)
            self.assertIn("::rand", str(block["frames"]))

    def test_memory_snapshot_script(self) -> None:
        @torch.jit.script
        def scripted():
            return torch.rand(311, 411, device="cuda")

        with memory_history("state", stacks="python"):
            _odd = scripted()
            (block,) = blocks_of_size(ODD_BYTES)
            self.assertEqual(block["frames"][0]["name"], "scripted")

    def test_memory_snapshot_skip_actions(self) -> None:
        for skipped in (["free_requested"], ["free_requested", "free_completed"], ["alloc"],
                        ["segment_alloc", "segment_free", "segment_map", "segment_unmap"], [], None):
            with self.subTest(skipped=skipped):
                torch.cuda.memory.empty_cache()
                with memory_history(context="all", stacks="python", skip_actions=skipped):
                    torch.rand(128, 128, device="cuda")
                    torch.cuda.synchronize()
                    traces = torch.cuda.memory._snapshot()["device_traces"]
                actions = {event["action"] for trace in traces for event in trace}
                self.assertTrue(actions)
                self.assertTrue(actions.isdisjoint(skipped or []), actions)

    def test_memory_profiler_viz(self) -> None:
        with torch.profiler.profile(with_stack=True, profile_memory=True, record_shapes=True) as profile:
            x = torch.rand(128, 128, device="cuda")
            _ = x * x + x * x
        profile_plot(profile)
        text = json.dumps(_profile_to_snapshot(profile))
        for part in ("test_cuda_history.py", "test_memory_profiler_viz", "category"):
            self.assertIn(part, text)

    def test_memory_plots(self) -> None:
        for context, stacks in (("all", "all"), ("all", "python"), (None, "python")):
            with self.subTest(context=context, stacks=stacks):
                torch.cuda.memory.empty_cache()
                with memory_history("all", context=context, stacks=stacks):
                    x = torch.rand(128, 128, device="cuda")
                    _ = x * x + x * x
                    snapshot = torch.cuda.memory._snapshot()
                trace_plot(snapshot)
                trace_plot(snapshot, filter_freed=True)
                segment_plot(snapshot)
                text = json.dumps(snapshot)
                self.assertEqual("test_memory_plots" in text, context is not None)
                self.assertEqual("::rand" in text, stacks == "all")
                self.assertIn(str(128 * 128 * 4), text)

    def test_memory_plots_free_stack(self) -> None:
        for context in ("alloc", "all", "state"):
            with self.subTest(context=context):
                torch.cuda.memory.empty_cache()
                # What is mapped for a block is mapped with its stack, so something is there before.
                before = torch.rand(3, 4, device="cuda")
                held = []

                def the_alloc() -> None:
                    held.append(torch.rand(3, 4, device="cuda"))

                def the_free() -> None:
                    held.clear()

                with memory_history(context=context):
                    the_alloc()
                    the_free()
                    text = json.dumps(torch.cuda.memory._snapshot())
                self.assertEqual("the_free" in text, context == "all")
                self.assertEqual("the_alloc" in text, context != "state")
                del before

    def test_memory_plots_history_context(self) -> None:
        held = []

        def captured_first() -> None:
            held.append(torch.rand(4, 4, device="cuda"))

        def not_recorded() -> None:
            held.append(torch.rand(3, 4, device="cuda"))

        def captured_last() -> None:
            held.append(torch.rand(4, 4, device="cuda"))

        record = torch.cuda.memory._record_memory_history
        try:
            record(context="all", stacks="python")
            captured_first()
            record(context=None)
            not_recorded()
            record(context="all", stacks="python")
            captured_last()
            text = json.dumps(torch.cuda.memory._snapshot())
        finally:
            record(None)
        self.assertIn("captured_first", text)
        self.assertNotIn("not_recorded", text)
        self.assertIn("captured_last", text)

    def test_memory_plots_free_segment_stack(self) -> None:
        for context in ("alloc", "all", "state"):
            with self.subTest(context=context):
                torch.cuda.memory.empty_cache()
                with memory_history(context=context):
                    torch.rand(3, 4, device="cuda")
                    torch.cuda.memory.empty_cache()
                    text = json.dumps(torch.cuda.memory._snapshot())
                self.assertEqual("empty_cache" in text, context == "all")

    def test_memory_plots_metadata(self) -> None:
        for context in ("alloc", "all", "state"):
            with self.subTest(context=context):
                torch.cuda.memory.empty_cache()
                torch.cuda.memory._set_memory_metadata("metadata test")
                with memory_history(context=context):
                    torch.rand(3, 4, device="cuda")
                    torch.cuda.memory.empty_cache()
                    torch.cuda.memory._set_memory_metadata("")
                    trace = torch.cuda.memory._snapshot()["device_traces"][0]
                self.assertTrue(trace)
                self.assertEqual({event["user_metadata"] for event in trace}, {"metadata test"})

    def test_cpp_memory_snapshot_pickle(self) -> None:
        # What C++ programs call. A std::string is made where the first argument points.
        library = ctypes.CDLL("libtorch_cuda.so")
        pickled = library["_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev"]
        pickled.restype = None
        strings = "St6vectorINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESaIS7_EE"
        start = library[f"_ZN5torch4cuda22_record_memory_historyEbblbbbbbRK{strings}"]

        def record(enabled: bool, context: bool) -> None:
            start(enabled, context, ctypes.c_int64(10), context, context, False, False, False,
                  (ctypes.c_void_p * 3)())  # no skipped actions

        for context in (False, True):
            record(True, context)
            try:
                odd = torch.rand(*ODD, device="cuda")
                string = (ctypes.c_void_p * 4)()
                pickled(string)
                snapshot = pickle.loads(ctypes.string_at(string[0], string[1]))
            finally:
                record(False, False)
            last = snapshot["device_traces"][0][-1]
            self.assertEqual((last["action"], last["size"]), ("alloc", ODD_BYTES))
            (block,) = [b for s in snapshot["segments"] for b in s["blocks"]
                        if b["requested_size"] == ODD_BYTES and b["state"] == "active_allocated"]
            self.assertEqual("::rand" in str(block["frames"]), context)
            self.assertEqual("test_cpp_memory_snapshot_pickle" in str(block["frames"]), context)
            del odd

    def test_cycles(self) -> None:
        from torch.utils.viz._cycles import observe_tensor_cycles

        pages = []
        disarm = observe_tensor_cycles(pages.append)
        try:
            def create():
                x = torch.empty(3, 4, device="cuda")

                def recursive(again):
                    return recursive(not again) if again else x

                return recursive

            create()
            gc.collect()
            (lambda: None)()  # the observer runs at the first call after the collection
            self.assertTrue(pages)
            for part in ("torch.Tensor", "test_cuda", "cell_contents"):
                self.assertIn(part, pages[0])
        finally:
            disarm()

    def test_direct_traceback(self) -> None:
        from torch._C._profiler import gather_traceback, symbolize_tracebacks

        (frames,) = symbolize_tracebacks([gather_traceback(True, True, True)])
        self.assertIn("test_cuda_history.py", str(frames))
        self.assertIn("unwind", str(frames))

    def test_memory_compile_regions(self) -> None:
        # What torch.compile does around its regions, without it: the context is part of each event.
        with memory_history(context="all", compile_context=True):
            torch.rand(3, 4, device="cuda")
            trace = torch.cuda.memory._snapshot()["device_traces"][0]
        self.assertEqual({event["compile_context"] for event in trace}, {"N/A"})

    def test_snapshot_opens_in_the_viewer(self) -> None:
        """What MemoryViz.js relies on: it replays the trace backwards from the segments."""
        with memory_history(context="all", stacks="python"):
            kept = [torch.empty(size, device="cuda") for size in (100, 1 << 20, 5 << 20)]
            torch.empty(3 << 20, device="cuda")
            torch.cuda.empty_cache()
            snapshot = pickle.loads(pickle.dumps(torch.cuda.memory._snapshot()))
        ranges = []
        for segment in snapshot["segments"]:
            self.assertEqual(sum(b["size"] for b in segment["blocks"]), segment["total_size"])
            address = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], address)
                address += block["size"]
            ranges.append((segment["address"], address))
        self.assertEqual(ranges, sorted(ranges))
        live = {}
        for event in snapshot["device_traces"][0]:
            if event["action"] == "alloc":
                live[event["addr"]] = event["size"]
            elif event["action"] == "free_completed":
                self.assertEqual(live.pop(event["addr"]), event["size"])
            self.assertGreater(event["time_us"], 0)
        self.assertEqual(live, {t.data_ptr(): t.nbytes for t in kept})
        for address, size in live.items():
            self.assertTrue(any(begin <= address and address + size <= end for begin, end in ranges))


if __name__ == "__main__":
    rig.main()
