"""TestCuda: memory of CUDA graphs: private pools, statistics, streams during a capture."""

from __future__ import annotations

import gc
import itertools

import rig  # before torch
import torch

import device_control
from rig import FACTS, MIB, TorchTestCase, stat

SHARING = ("no", "pool()", "graph_pool_handle()")


def pool_arguments(sharing: str) -> tuple[tuple[int, int], ...]:
    return (torch.cuda.graph_pool_handle(),) if sharing == "graph_pool_handle()" else ()


def pool_of_second(sharing: str, first: torch.cuda.CUDAGraph,
                   arguments: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return (first.pool(),) if sharing == "pool()" else arguments


def with_temporaries(tensor: torch.Tensor, value: int) -> torch.Tensor:
    return (tensor.clone() + value) + (tensor.clone() + value)


class TestCuda(TorchTestCase):
    def test_graph_is_current_stream_capturing(self) -> None:
        self.assertFalse(torch.cuda.is_current_stream_capturing())
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            graph = torch.cuda.CUDAGraph()
            self.assertFalse(torch.cuda.is_current_stream_capturing())
            graph.capture_begin()
            self.assertTrue(torch.cuda.is_current_stream_capturing())
            torch.empty(1, device="cuda").zero_()
            graph.capture_end()
            self.assertFalse(torch.cuda.is_current_stream_capturing())

    def test_graph_capture_simple(self) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            source = torch.ones(1000).cuda()
            graph = torch.cuda.CUDAGraph()
            torch.cuda.empty_cache()
            graph.capture_begin()
            copy = source
            for _ in range(10):
                copy = copy.clone()
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        graph.replay()
        self.assertEqual(copy.cpu().sum().item(), 1000)
        source.copy_(torch.full((1000,), 3.0))
        graph.replay()
        self.assertEqual(copy.cpu().sum().item(), 3000)

    def test_graph_capture_reset_recapture(self) -> None:
        stream = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        source = torch.ones(1000).cuda()
        for value in (11.0, 22.0):
            source.copy_(torch.full((1000,), value))
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                torch.cuda.empty_cache()
                graph.capture_begin()
                result = source
                for _ in range(10):
                    result = result.clone()
                graph.capture_end()
            torch.cuda.current_stream().wait_stream(stream)
            graph.replay()
            self.assertEqual(result.cpu().sum().item(), 1000 * value)
            graph.reset()

    def test_graph_capture_oom(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "out of memory"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                torch.zeros(2**40, device="cuda")

    def test_graph_two_successive(self) -> None:
        size = 1000
        stream = torch.cuda.Stream()
        reserved = {}
        for sharing in SHARING:
            first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            source = torch.ones(size, device="cuda")
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                arguments = pool_arguments(sharing)
                first.capture_begin(*arguments)
                result = source.clone()
                for _ in range(5):
                    result = with_temporaries(result, 1)
                first.capture_end()
                second.capture_begin(*pool_of_second(sharing, first, arguments))
                for _ in range(5):
                    result = with_temporaries(result, 1)
                second.capture_end()
            torch.cuda.current_stream().wait_stream(stream)
            eager = source.clone()
            for graph in (first, second):
                eager = with_temporaries(eager, 3)
                graph.replay()
            reserved[sharing] = stat("reserved_bytes.all.current")
            del source, result, eager, first, second, graph
            rig.settle()
        for sharing in SHARING[1:]:
            self.assertEqual(reserved["no"] - reserved[sharing], 2 * MIB, sharing)

    def test_graph_three_successive(self) -> None:
        size = 1000
        stream = torch.cuda.Stream()
        for sharing in SHARING:
            source = torch.ones(size).cuda()
            graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                arguments = pool_arguments(sharing)
                graphs[0].capture_begin(*arguments)
                b = source.clone()
                c = b.clone()
                d = b.clone()
                graphs[0].capture_end()
                arguments = pool_of_second(sharing, graphs[0], arguments)
                c_address = c.data_ptr()
                graphs[1].capture_begin(*arguments)
                e = c.clone()
                del c
                graphs[1].capture_end()
                graphs[2].capture_begin(*arguments)
                f = d.clone()
                graphs[2].capture_end()
            torch.cuda.current_stream().wait_stream(stream)
            for graph in graphs:
                graph.replay()
            self.assertEqual(e.cpu().sum().item(), size)
            self.assertEqual(f.cpu().sum().item(), size)
            # What the second graph freed is the third one's, if and only if they share a pool.
            self.assertEqual(f.data_ptr() == c_address, sharing != "no")
            del source, b, d, e, f, graphs, graph
            rig.settle()

    def test_graph_concurrent_replay(self) -> None:
        size = 1000
        stream = torch.cuda.Stream()
        for sharing in SHARING:
            graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            streams = torch.cuda.Stream(), torch.cuda.Stream()
            source = torch.ones(size).cuda()
            stream.wait_stream(torch.cuda.current_stream())
            temporaries: list[set[int]] = []
            results = []
            with torch.cuda.stream(stream):
                arguments = pool_arguments(sharing)
                for graph in graphs:
                    graph.capture_begin(*arguments)
                    temporary = source.clone()
                    temporaries.append({temporary.data_ptr()})
                    results.append(temporary.clone())
                    del temporary
                    graph.capture_end()
                    arguments = pool_of_second(sharing, graphs[0], arguments)
            torch.cuda.synchronize()
            device_control.clear_checker_reports()
            for one, graph in zip(streams, graphs):
                with torch.cuda.stream(one):
                    graph.replay()
            torch.cuda.synchronize()
            # Graphs that share a pool share its memory, so they must not run at once.
            shared = not temporaries[0].isdisjoint(temporaries[1])
            self.assertEqual(shared, sharing != "no")
            self.assertEqual(device_control.checker_reports()[0] > 0, shared)
            device_control.clear_checker_reports()
            del source, results, graphs, graph
            rig.settle()

    def test_graph_memory_stats_and_use_result_after_destroy_graph(self) -> None:
        # (bytes of a tensor, how many segments the graph's pool takes for three of them)
        cases = ((512, 1), (MIB, 2), (MIB + 512, 1), (10 * MIB - 512, 2), (10 * MIB + 512, 3))
        stream = torch.cuda.Stream()
        for size, segments in cases:
            pool = "small_pool" if size <= FACTS.small_limit else "large_pool"
            with self.subTest(size=size):
                self._check_graph_stats(stream, size, segments, pool)

    def _check_graph_stats(self, stream: torch.cuda.Stream, size: int, segments: int, pool: str) -> None:
        kinds = [f"{kind}.{pool}.current" for kind in ("segment", "reserved_bytes", "active", "active_bytes")]
        graph = torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            source = torch.ones(size // 4).cuda()
            before = torch.cuda.memory_stats()
            graph.capture_begin()
            result = source.clone()
            for _ in range(5):
                result = result.clone() + 1
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        gc.collect()
        after = torch.cuda.memory_stats()
        # The seed and the offset of the random generator belong to the capture, outside of its pool.
        extra = 2 if pool == "small_pool" else 0
        grown = {kind: after[kind] - before[kind] for kind in kinds}
        self._check_growth(grown, kinds, size, segments, 1 + extra, size + 512 * extra)
        for step in range(2):
            graph.replay()
            result.cpu()  # waits for the graph
            if step == 0:
                torch.cuda.empty_cache()
        del graph
        gc.collect()
        torch.cuda.empty_cache()
        stats = torch.cuda.memory_stats()
        # The result lives on, and is all that is left of the pool.
        grown = {kind: stats[kind] - before[kind] for kind in kinds}
        self._check_growth(grown, kinds, size, 1, 1, size)
        result.copy_(torch.full((size // 4,), 6.0))
        self.assertEqual(result.cpu().sum().item(), 6 * size // 4)
        del source, result
        rig.settle()

    def _check_growth(self, grown: dict[str, int], kinds: list[str], size: int, segments: int,
                      blocks: int, block_bytes: int) -> None:
        reserved = grown[kinds[1]]
        if FACTS.fixed_segments:
            self.assertEqual(grown[kinds[0]], segments)
            self.assertEqual(reserved, segments * FACTS.segment_bytes(size))
        elif FACTS.expandable:
            self.assertEqual(grown[kinds[0]], 0)
            self.assertIn(reserved, (segments * FACTS.segment_bytes(size), 40 * MIB, 20 * MIB))
        else:  # idle memory of before may have served it
            self.assertLessEqual(reserved, 3 * FACTS.segment_bytes(size))
        self.assertEqual(grown[kinds[2]], blocks)
        self.assertEqual(grown[kinds[3]], block_bytes)

    def test_memory_stats_of_multiple_generators_and_graphs(self) -> None:
        def figures() -> tuple[int, int]:
            return stat("active.all.current"), stat("active_bytes.all.current")

        torch.empty(1, device="cuda")
        for graph_count, generator_count in ((1, 1), (3, 2), (10, 20)):
            before = figures()
            graphs = [torch.cuda.CUDAGraph() for _ in range(graph_count)]
            default = torch.cuda.default_generators[0]
            generators = [default.graphsafe_get_state()]
            generators += [default.clone_state() for _ in range(1, generator_count)]
            for graph in graphs:
                for generator in generators:
                    graph.register_generator_state(generator)
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    graph.capture_begin()
                    torch.rand(1, device="cuda")
                    graph.capture_end()
                torch.cuda.current_stream().wait_stream(stream)
                graph.replay()
            blocks, size = figures()
            # Each generator has a seed and an offset, however many graphs there are.
            self.assertEqual(blocks - before[0], 2 * generator_count)
            self.assertEqual(size - before[1], 2 * 512 * generator_count)
            del graph, graphs
            rig.settle()
            self.assertEqual(figures(), before)

    def test_graph_record_stream(self) -> None:
        waiting = torch.zeros(3, device="cuda")
        source = torch.zeros(3, device="cuda")
        side, capturing, other = (torch.cuda.Stream() for _ in range(3))
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            waiting.record_stream(side)
            device_control.hold(side)
            waiting.fill_(1.0)
        del waiting
        with torch.cuda.stream(capturing):
            graph.capture_begin()
            # Must not ask for the event of what was freed above: that would end the capture.
            copy = source.clone()
            other.wait_stream(capturing)
            with torch.cuda.stream(other):
                copy.fill_(1.0)
                copy.record_stream(other)
                del copy
            capturing.wait_stream(other)
            graph.capture_end()
        device_control.release(side)
        torch.cuda.synchronize()
        torch.zeros(3, device="cuda")  # looks at what waited

    def test_cuda_graph_allocator_propagates_stream(self) -> None:
        def pools() -> list[tuple[int, int]]:
            return [s["segment_pool_id"] for s in torch.cuda.memory_snapshot()]

        capturing, used = torch.cuda.Stream(), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.memory_snapshot()
        self.assertNotIn(used.cuda_stream, [s["stream"] for s in before])
        with torch.cuda.stream(capturing):
            graph.capture_begin()
            event = torch.cuda.Event()
            event.record(capturing)
            used.wait_event(event)
            with torch.cuda.stream(used):
                tensor = torch.empty(1000, device="cuda")  # on a stream that joined the capture
            capturing.wait_stream(used)
            graph.capture_end()
        segments = [s for s in torch.cuda.memory_snapshot() if s["stream"] == used.cuda_stream]
        self.assertEqual([s["segment_pool_id"] for s in segments], [graph.pool()])
        self.assertIn(graph.pool(), pools())
        del tensor

    def test_repeat_graph_capture_memory(self) -> None:
        # test_repeat_graph_capture_cublas_workspace_memory without cuBLAS.
        operand = torch.rand((1024, 512), device="cuda")

        def capture() -> None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                operand.clone()
            graph.replay()

        capture()
        before = torch.cuda.mem_get_info()[0]
        for _ in range(100):
            capture()
        self.assertLess(before - torch.cuda.mem_get_info()[0], 100_000_000)

    def test_graph_make_graphed_callables_same_pool(self) -> None:
        models = [torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.ReLU()).cuda() for _ in range(3)]
        pool = torch.cuda.graph_pool_handle()
        graphed = [torch.cuda.make_graphed_callables(m, (torch.randn([64, 32], device="cuda"),), pool=pool)
                   for m in models]
        inputs = torch.randn([64, 32], device="cuda")
        outputs = [model(inputs) for model in graphed]
        for output in outputs:
            output.norm().backward()
        addresses = [p.grad.data_ptr() for m in models for p in m.parameters()]
        self.assertEqual(len(set(addresses)), len(addresses))
        self.assertEqual(len({output.data_ptr() for output in outputs}), 3)
        for segment, block in itertools.chain.from_iterable(
                ((s, b) for b in s["blocks"]) for s in torch.cuda.memory_snapshot()):
            if block["address"] in {output.data_ptr() for output in outputs}:
                self.assertEqual(segment["segment_pool_id"], pool)


if __name__ == "__main__":
    rig.main()
