"""CudaGraphTreeTests: cudagraph trees over plain functions that copy, so that values are right without kernels.

torch.compile gives the trees its compiled functions; what the trees ask of the allocator is the same. The trees
copy inputs into graphs by a kernel, which computes nothing here: so the first input is one that stays in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rig  # before torch
import torch
from torch._inductor import cudagraph_trees as trees

from graph_pools import live_blocks, segments_of
from rig import MIB, TorchTestCase

Function = Callable[[torch.Tensor], list[torch.Tensor]]
FLOATS = 1000


class Graphed:
    """The function as torch.compile(mode="reduce-overhead") would run it."""

    def __init__(self, function: Function, outputs: int, static_input: bool = True, device: int = 0) -> None:
        self._device = device
        self._static = (0,) if static_input else ()
        self._run: Any = None
        self._outputs = outputs

        def model(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            (tensor,) = inputs
            inputs.clear()
            return function(tensor)

        self._model = model

    def __call__(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        if self._run is not None:
            return self._run([tensor])
        self._run, outputs = trees.cudagraphify(
            self._model, [tensor], self._static, device_index=self._device, is_backward=False, is_inference=True,
            stack_traces=[None] * self._outputs)
        return outputs


class Source:
    """The input of a tree: one tensor that is given new values."""

    def __init__(self, device: int = 0) -> None:
        self._tensor = torch.empty(FLOATS, device=f"cuda:{device}")

    def __call__(self, value: float) -> torch.Tensor:
        self._tensor.copy_(torch.full((FLOATS,), float(value)))
        return self._tensor


def two_copies(tensor: torch.Tensor) -> list[torch.Tensor]:
    first = tensor.clone()
    return [first.clone(), first.clone()]


class CudaGraphTreeTests(TorchTestCase):
    def setUp(self) -> None:
        super().setUp()
        trees.reset_cudagraph_trees()
        self.sources = [Source(device) for device in range(2)]
        self.addCleanup(self.sources.clear)
        self.addCleanup(rig.settle)
        self.addCleanup(trees.reset_cudagraph_trees)

    def manager(self, device: int = 0) -> Any:
        return trees.get_manager(device, create_if_none_exists=False)

    def live(self) -> int:
        """Blocks in use in the pool, once the allocator knows what the last replay made."""
        self.manager().apply_checkpoint_execution_state_in_allocator()
        return live_blocks(self.manager().cuda_graphs_thread_pool)

    def step(self, function: Graphed, value: float, device: int = 0) -> list[torch.Tensor]:
        torch.compiler.cudagraph_mark_step_begin()
        outputs = function(self.sources[device](value))
        for output in outputs:
            self.assertEqual(output.cpu().unique().tolist(), [value])
        return outputs

    def test_run_simple(self) -> None:
        function = Graphed(two_copies, 2)
        addresses = []
        for value in range(1, 6):  # warm up, record, replay three times
            addresses.append([o.data_ptr() for o in self.step(function, value)])
        self.assertEqual(self.manager().path_state, trees.ExecutionState.EXECUTION)
        self.assertEqual(len(list(self.manager().get_roots())), 1)
        self.assertEqual(addresses[1:], [addresses[1]] * 4)

    def test_execution_into_recording(self) -> None:
        # A second function is recorded after replays of the first, whose outputs live on.
        one, two = Graphed(two_copies, 2), Graphed(two_copies, 2, static_input=False)
        for value in range(3):
            self.step(one, value)
        for value in range(3, 6):
            torch.compiler.cudagraph_mark_step_begin()
            first = one(self.sources[0](value))
            second = two(first[0])
            for output in (*first, *second):
                self.assertEqual(output.cpu().unique().tolist(), [value])
        self.assertEqual(len({o.data_ptr() for o in (*first, *second)}), 4)

    def test_branching(self) -> None:
        # Two continuations of one recording: the pool is set back to its end for each.
        root = Graphed(two_copies, 2)
        left, right = (Graphed(two_copies, 2, static_input=False) for _ in range(2))
        for value in range(8):
            torch.compiler.cudagraph_mark_step_begin()
            first = root(self.sources[0](value))
            branch = left if value % 2 else right
            outputs = branch(first[1])
            for output in (*first, *outputs):
                self.assertEqual(output.cpu().unique().tolist(), [value])
        self.assertEqual(len(list(self.manager().get_roots())), 1)

    def test_live_outputs_multiple_graphs(self) -> None:
        functions = [Graphed(two_copies, 2, static_input=not i) for i in range(3)]
        for value in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            tensor = self.sources[0](value)
            kept = []
            for function in functions:
                kept += function(tensor)
                tensor = kept[-1]
            self.assertEqual({v for o in kept for v in o.cpu().unique().tolist()}, {value})
            self.assertEqual(len({o.data_ptr() for o in kept}), 6)
        self.assertEqual(self.live(), 6)

    def test_tensor_dies_between_checkpoint(self) -> None:
        one, two = Graphed(two_copies, 2), Graphed(two_copies, 2, static_input=False)
        for value in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            first = one(self.sources[0](value))
            second_input = first.pop()
            first.clear()  # dies before the second function runs
            outputs = two(second_input)
            del second_input
            self.assertEqual(outputs[0].cpu().unique().tolist(), [value])
        self.assertEqual(self.live(), 2)

    def test_accumulate_multiple_recordings(self) -> None:
        # The memory of a tree is the most that one path needs, not the sum of its branches.
        size = 16 * MIB // 4

        def copies(tensor: torch.Tensor) -> list[torch.Tensor]:
            return [torch.empty(size, device="cuda").copy_(tensor.expand(size)).clone() for _ in range(2)]

        functions = [Graphed(copies, 2) for _ in range(4)]
        for _ in range(3):
            for function in functions:
                torch.compiler.cudagraph_mark_step_begin()
                function(torch.empty(1, device="cuda"))
        reserved = sum(s["total_size"] for s in segments_of(self.manager().cuda_graphs_thread_pool))
        self.assertLessEqual(reserved, 4 * 20 * MIB)

    def test_error_on_dealloc_use(self) -> None:
        function = Graphed(two_copies, 2)
        earlier = None
        for value in range(3):  # of the warm-up, then of the recording
            outputs = self.step(function, value)
            if earlier is not None:
                with self.assertRaisesRegex(Exception, "overwritten by a subsequent run"):
                    earlier[0] + earlier[1]
            earlier = outputs

    def test_cleanup(self) -> None:
        function = Graphed(two_copies, 2)
        for value in range(4):
            outputs = self.step(function, value)
        self.assertEqual(self.live(), 2)
        outputs.clear()
        self.assertEqual(self.live(), 0)
        pool = self.manager().cuda_graphs_thread_pool
        del function
        trees.reset_cudagraph_trees()
        rig.settle()
        self.assertEqual(segments_of(pool), [])

    def test_manager_per_device(self) -> None:
        functions = [Graphed(two_copies, 2, device=device) for device in range(2)]
        for value in range(3):
            for device, function in enumerate(functions):
                with torch.cuda.device(device):
                    self.step(function, value, device)
        self.assertIsNot(self.manager(0), self.manager(1))

    def test_side_stream_memory_allocation(self) -> None:
        side = torch.cuda.Stream()

        def on_side(tensor: torch.Tensor) -> list[torch.Tensor]:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                output = tensor.clone()
            torch.cuda.current_stream().wait_stream(side)
            return [output]

        function = Graphed(on_side, 1)
        for value in range(4):
            self.step(function, value)
        pool = self.manager().cuda_graphs_thread_pool
        self.assertIn(side.cuda_stream, [s["stream"] for s in segments_of(pool)])


if __name__ == "__main__":
    rig.main()
