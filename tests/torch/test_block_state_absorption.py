"""TestBlockStateAbsorption: checkpoints of the pools of CUDA graphs, which cudagraph trees are built on."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import rig  # before torch
import torch

from graph_pools import (Pool, Segment, checkpoint, cudagraphify, int8_cuda, live_blocks, restore,
                         same_memory, segments_of, segments_of_all_graphs)
from rig import FACTS, MIB, TorchTestCase


class TestBlockStateAbsorption(TorchTestCase):
    def setUp(self) -> None:
        super().setUp()
        self._graph_segments = len(segments_of_all_graphs())

    def tearDown(self) -> None:
        rig.settle()
        self.assertEqual(len(segments_of_all_graphs()), self._graph_segments)
        super().tearDown()

    def assert_restored(self, before: list[Segment], after: list[Segment]) -> None:
        """`after` may hold more segments; those of `before` are the same, block by block."""
        now = {s["address"]: s for s in after}
        for old in before:
            self.assertIn(old["address"], now)
            new = now[old["address"]]
            for key in ("device", "total_size", "allocated_size", "active_size", "segment_type",
                        "segment_pool_id"):
                self.assertEqual(old[key], new[key], key)
            self.assertEqual([(b["size"], b["state"]) for b in old["blocks"]],
                             [(b["size"], b["state"]) for b in new["blocks"]])

    def check_function(self, function: Callable[..., Any], inputs: list[torch.Tensor]) -> None:
        graph, outputs = cudagraphify(function, inputs)
        before = segments_of(graph.pool())
        self.assertTrue(before)
        restore(checkpoint(graph.pool()))
        self.assert_restored(before, segments_of(graph.pool()))

    def test_simple(self) -> None:
        def function() -> tuple[torch.Tensor, ...]:
            x = torch.zeros([8 * MIB], device="cuda", dtype=torch.uint8)
            x = x + x
            x1 = int8_cuda(MIB) + int8_cuda(MIB) + int8_cuda(MIB)
            return x, int8_cuda(MIB) + x1, int8_cuda(MIB)

        self.check_function(function, [])

    def test_allocated_in_middle_of_segment(self) -> None:
        self.check_function(lambda: [int8_cuda(512) for _ in range(11)][5].add_(2), [])

    def test_multiple_middle_allocations(self) -> None:
        self.check_function(lambda: [int8_cuda(512) for _ in range(11)][5:9:3], [])

    def test_middle_allocations_contiguous(self) -> None:
        self.check_function(lambda: [int8_cuda(512) for _ in range(11)][5:7], [])

    def test_additional_free_following_checkpoint(self) -> None:
        graph, outputs = cudagraphify(lambda: (int8_cuda(512),), [])
        pool = graph.pool()
        before = segments_of(pool)
        state = checkpoint(pool)
        graph2, outputs2 = cudagraphify(lambda: (int8_cuda(512),), [], pool=pool)
        restore(state, stale=list(outputs2))
        del outputs2
        self.assert_restored(before, segments_of(pool))

    def test_tensor_dies_after_checkpoint(self) -> None:
        graph, outputs = cudagraphify(lambda: (int8_cuda(512), int8_cuda(512)), [])
        pool = graph.pool()
        state = checkpoint(pool)
        addresses = [output.data_ptr() for output in outputs]
        del outputs
        restore(state)
        for left in (2, 1):
            self.assertEqual(live_blocks(pool), left)
            torch._C._cuda_cudaCachingAllocator_raw_delete(addresses[2 - left])
        self.assertEqual(live_blocks(pool), 0)

    def test_assigning_back_deleter_fns_to_tensor(self) -> None:
        graph, outputs = cudagraphify(
            lambda x: tuple(int8_cuda(s * MIB) + x for s in (2, 2, 20)), [torch.tensor([1]).cuda()])
        pool = graph.pool()
        graph.replay()
        state = checkpoint(pool)
        addresses = [o.untyped_storage().data_ptr() for o in outputs]
        makers = [same_memory(o) for o in outputs]
        self.assertEqual(live_blocks(pool), 3)
        del outputs
        self.assertEqual(live_blocks(pool), 0)
        tensors = [make() for make in makers]
        graph.replay()
        restore(state, adopted=tensors[:2])
        self.assertEqual(live_blocks(pool), 3)
        for left in (2, 1):
            tensors.pop(0)  # has a deleter now
            self.assertEqual(live_blocks(pool), left)
        tensors.pop(0)  # has none: was not given
        self.assertEqual(live_blocks(pool), 1)
        torch._C._cuda_cudaCachingAllocator_raw_delete(addresses[2])
        self.assertEqual(live_blocks(pool), 0)

    def test_resnet(self) -> None:
        # torchvision's bottleneck blocks by hand: what matters are many sizes that come and go.
        layers = []
        for channels in (8, 16, 32, 64):
            layers += [torch.nn.Conv2d(channels // 2, channels, 3, padding=1, stride=2),
                       torch.nn.BatchNorm2d(channels), torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers).eval().cuda()
        with torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
            self.check_function(model, [torch.rand([1, 4, 255, 255], device="cuda")])

    def test_check_pool_live_allocations(self) -> None:
        pool = torch.cuda.graph_pool_handle()
        graph, output = cudagraphify(lambda: torch.ones([4], device="cuda"), [], pool=pool)

        def check(live: set[int]) -> bool:
            return torch._C._cuda_checkPoolLiveAllocations(0, pool, live)

        self.assertTrue(check({output.data_ptr()}))
        self.assertFalse(check({output.data_ptr(), 0}))
        self.assertFalse(check(set()))
        del output
        self.assertTrue(check(set()))

    def test_allocate_in_thread_to_pool(self) -> None:
        pool = torch.cuda.graph_pool_handle()
        graph, output = cudagraphify(lambda: torch.rand([4], device="cuda"), [], pool=pool)
        del output
        before = segments_of(pool)
        self.assertEqual(len(before), 1)

        def allocate_three() -> None:
            a, b = int8_cuda(20 * MIB), int8_cuda(20 * MIB)
            _ = a + b

        def in_pool() -> None:
            with this_thread_allocates_to(pool):
                for _ in range(10):
                    allocate_three()
            allocate_three()  # not in the pool

        def elsewhere() -> None:
            for _ in range(10):
                a, b = int8_cuda(20 * MIB), int8_cuda(20 * MIB)
                del a, b

        rig.run_threads(in_pool, elsewhere)
        after = segments_of(pool)
        grown = sum(s["total_size"] for s in after) - sum(s["total_size"] for s in before)
        self.assertEqual(grown, 60 * MIB)
        if FACTS.fixed_segments or FACTS.expandable:
            self.assertEqual(len(after), 2 if FACTS.expandable else 4)
        del graph
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(segments_of(pool), [])

    def test_no_triton_on_import(self) -> None:
        self.assertEqual(rig.script_output(
            "import sys; torch.rand(2, device='cuda'); print('triton' in sys.modules)"), "False")

    def test_expandable_segment_checkpoint_growth(self) -> None:
        # A pool that grew after its checkpoint is set back to it, and grows again.
        rig.set_allocator("expandable_segments:True")
        pool = torch.cuda.graph_pool_handle()
        graph, outputs = cudagraphify(lambda: (int8_cuda(30 * MIB),), [], pool=pool)
        before = segments_of(pool)
        state = checkpoint(pool)
        for _ in range(2):
            graph2, outputs2 = cudagraphify(lambda: (int8_cuda(60 * MIB),), [], pool=pool)
            address = outputs2[0].data_ptr()
            restore(state, stale=list(outputs2))
            del outputs2
            self.assertEqual(live_blocks(pool), len(outputs))
            self.assertEqual(sum(s["allocated_size"] for s in segments_of(pool)),
                             sum(s["allocated_size"] for s in before))
            self.assertNotEqual(address, outputs[0].data_ptr())


@contextlib.contextmanager
def this_thread_allocates_to(pool: Pool) -> Iterator[None]:
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.device("cuda:0"):
        torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
        try:
            yield
        finally:
            torch._C._cuda_endAllocateToPool(0, pool)
            torch._C._cuda_releasePool(0, pool)
    torch.cuda.current_stream().wait_stream(stream)


if __name__ == "__main__":
    rig.main()
