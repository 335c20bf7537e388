"""TestMemPool: pools of a program's own, without an allocator of its own, and in captures."""

from __future__ import annotations

import threading
from collections import defaultdict

import rig  # before torch
import torch

import device_control
from rig import FACTS, MIB, TorchTestCase, memory_history, set_allocator

FLOATS = MIB // 4  # as many as a MiB holds


class TestMemPool(TorchTestCase):
    def test_mempool_id(self) -> None:
        handle, pool = torch.cuda.graph_pool_handle(), torch.cuda.MemPool()
        self.assertEqual(handle[0], 0)
        self.assertEqual(pool.id[0], 0)
        self.assertGreater(pool.id[1], handle[1])

    def test_mempool_empty_cache(self) -> None:
        pool = torch.cuda.MemPool()
        outside = torch.empty(MIB, device="cuda")
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(MIB, device="cuda")
        del inside, outside, pool
        self.assertTrue(torch.cuda.memory._snapshot()["segments"])  # the default pool's is still cached

    def test_mempool_no_split(self) -> None:
        split, whole = torch.cuda.MemPool(), torch.cuda.MemPool(no_split=True)
        kept = []
        for _ in range(2):
            for pool in (split, whole):
                with torch.cuda.use_mem_pool(pool):
                    kept.append(torch.randn(4 * FLOATS, device="cuda"))
        if FACTS.fixed_segments:
            self.assertGreater(len(whole.snapshot()), len(split.snapshot()))
        for segment in whole.snapshot():
            self.assertEqual(len(segment["blocks"]), 1)
        self.assertEqual(len(whole.snapshot()), 2)

    def test_mempool_multithread(self) -> None:
        ids = []
        rig.run_threads(*[lambda: ids.append(torch.cuda.MemPool().id)] * 4)
        self.assertEqual(len(set(ids)), 4)

    def test_mempool_emptycache_multithread(self) -> None:
        pools = [torch.cuda.MemPool() for _ in range(4)]

        def work(pool: torch.cuda.MemPool) -> None:
            with torch.cuda.use_mem_pool(pool):
                torch.randn(4, device="cuda")
                torch.cuda.empty_cache()

        rig.run_threads(*[lambda pool=pool: work(pool) for pool in pools])
        for pool in pools:  # empty_cache leaves the pools of programs alone
            self.assertEqual(len(pool.snapshot()), 1)

    def test_nested_mempool(self) -> None:
        pools = [torch.cuda.MemPool() for _ in range(3)]
        kept = []

        def allocate() -> None:
            kept.append(torch.empty(20 * FLOATS, device="cuda"))

        with torch.cuda.use_mem_pool(pools[0]):
            allocate()
            with torch.cuda.use_mem_pool(pools[1]):
                allocate()
                with torch.cuda.use_mem_pool(pools[2]):
                    allocate()
                allocate()
            allocate()
        live = [sum(b["state"] == "active_allocated"
                    for s in torch.cuda.memory.memory_snapshot(pool.id) for b in s["blocks"])
                for pool in pools]
        self.assertEqual(live, [2, 2, 1])
        if FACTS.fixed_segments:
            self.assertEqual([len(torch.cuda.memory.memory_snapshot(p.id)) for p in pools], [2, 2, 1])

    def test_mempool_ctx_multithread(self) -> None:
        self.assertEqual(torch.cuda.memory._snapshot()["segments"], [])
        may_allocate, allocated = threading.Event(), threading.Event()
        seen = []

        def with_pool() -> None:
            pool = torch.cuda.MemPool()
            _outside = torch.empty(MIB, dtype=torch.int8, device="cuda")
            with torch.cuda.use_mem_pool(pool):
                torch.empty(MIB, dtype=torch.int8, device="cuda")
                may_allocate.set()
                self.assertTrue(allocated.wait(30))

        def other() -> None:
            self.assertTrue(may_allocate.wait(30))
            _default = torch.empty(MIB, dtype=torch.int8, device="cuda")
            seen.extend(torch.cuda.memory._snapshot()["segments"])
            allocated.set()

        rig.run_threads(with_pool, other)
        active: dict[tuple[int, int], int] = defaultdict(int)
        for segment in seen:
            active[segment["segment_pool_id"]] += segment["active_size"]
        self.assertEqual(sorted(active.values()), [0, 2 * MIB])
        self.assertEqual(active[0, 0], 2 * MIB)
        if FACTS.fixed_segments:
            self.assertEqual(len(seen), 2)

    def test_snapshot_include_traces(self) -> None:
        with memory_history():
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                torch.randn(1024, device="cuda")
            for include in (True, False):
                self.assertEqual(len(pool.snapshot(include_traces=include)), 1)
                self.assertTrue(torch.cuda.memory_snapshot(include_traces=include))
            for include in (True, False):
                traces = torch._C._cuda_memorySnapshot((0, 0, include))["device_traces"]
                self.assertEqual(any(traces), include)

    def test_snapshot_include_traces_correctness(self) -> None:
        _kept = [torch.ones(MIB, device="cuda", dtype=torch.uint8) for _ in range(3)]
        allocated = [sum(b["size"] for s in torch.cuda.memory_snapshot(include_traces=include)
                         for b in s["blocks"] if b["state"] == "active_allocated")
                     for include in (True, False)]
        self.assertEqual(allocated, [3 * MIB, 3 * MIB])

    def test_multi_threads_alloc_in_same_order(self) -> None:
        sizes = [s * 2 * MIB for s in range(1, 5) for _ in range(4)]

        def addresses() -> list[int]:
            left, lock, made = list(sizes), threading.Lock(), []

            def work() -> None:
                while True:
                    with lock:
                        if not left:
                            return
                        made.append(torch.empty(left.pop(), dtype=torch.int8, device="cuda"))

            rig.run_threads(*[work] * 4)
            return [tensor.data_ptr() for tensor in made]

        first = addresses()
        self.assertEqual(first, addresses())

    def test_graph_capture_reclaim_2_streams(self) -> None:
        set_allocator("graph_capture_record_stream_reuse:True")
        one, two = torch.cuda.Stream(), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(one):
            graph.capture_begin()
            sink = torch.empty(8, device="cuda")
            data = torch.empty(8, device="cuda")
            address = data.data_ptr()
            two.wait_stream(one)
            with torch.cuda.stream(two):
                torch.add(data, 2.0, out=torch.empty_like(data))
                data.record_stream(two)
            del data
            early = torch.empty(8, device="cuda")
            one.wait_stream(two)
            sink.fill_(1.0)
            late = torch.empty(8, device="cuda")
            graph.capture_end()
        torch.cuda.synchronize()
        self.assertNotEqual(early.data_ptr(), address, "reused before the streams joined")
        self.assertEqual(late.data_ptr(), address, "not reused after they joined")

    def test_graph_capture_reclaim_4_streams(self) -> None:
        set_allocator("graph_capture_record_stream_reuse:True")
        one, *others = (torch.cuda.Stream() for _ in range(4))
        two, three, four = others
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(one):
            graph.capture_begin()
            data = torch.ones(8, device="cuda")
            address = data.data_ptr()
            sink_one, sink_three = torch.empty_like(data), torch.empty_like(data)
            for other in others:
                other.wait_stream(one)
                with torch.cuda.stream(other):
                    torch.add(data, 2.0, out=torch.empty_like(data))
                    data.record_stream(other)
            del data
            one.wait_stream(two)
            sink_one.fill_(1.0)
            three.wait_stream(four)
            with torch.cuda.stream(three):
                sink_three.fill_(3.0)
                sink_three.record_stream(three)
            partly = torch.empty(8, device="cuda")  # the streams one and three have not met
            one.wait_stream(three)
            sink_one.add_(sink_three)
            joined = torch.empty(8, device="cuda")
            graph.capture_end()
        torch.cuda.synchronize()
        self.assertNotEqual(partly.data_ptr(), address, "reused while a stream has not joined")
        self.assertEqual(joined.data_ptr(), address, "not reused after all joined")

    def test_graph_capture_reclaim_shared_pool(self) -> None:
        # What a capture freed after its streams joined is there for the next one of the same pool.
        set_allocator("graph_capture_record_stream_reuse:True")
        pool = torch.cuda.graph_pool_handle()
        capturing, side = torch.cuda.Stream(), torch.cuda.Stream()
        graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        addresses = []
        with torch.cuda.stream(capturing):
            for graph in graphs:
                graph.capture_begin(pool=pool)
                data = torch.empty(8 * FLOATS, device="cuda")
                addresses.append(data.data_ptr())
                side.wait_stream(capturing)
                with torch.cuda.stream(side):
                    data.add_(1.0)
                    data.record_stream(side)
                capturing.wait_stream(side)
                del data
                graph.capture_end()
        torch.cuda.synchronize()
        self.assertEqual(addresses[0], addresses[1])

    def test_graph_capture_pre_capture_stream_use(self) -> None:
        # A stream used the block before the capture that frees it: reuse waits for that stream.
        set_allocator("graph_capture_record_stream_reuse:True")
        pool = torch.cuda.graph_pool_handle()
        capturing, side = torch.cuda.Stream(), torch.cuda.Stream()
        graphs = []

        def captured(kept: list[torch.Tensor] | None) -> torch.Tensor | None:
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.stream(capturing):
                graphs[-1].capture_begin(pool=pool)
                tensor = torch.empty(8 * FLOATS, device="cuda") if kept is None else kept.clear()
                graphs[-1].capture_end()
            return tensor

        data = [captured(None)]
        address = data[0].data_ptr()
        torch.cuda.synchronize()
        with device_control.held(side):
            with torch.cuda.stream(side):
                data[0].fill_(1)
                data[0].record_stream(side)
            captured(data)  # frees it
            torch.empty(1, device="cuda")  # looks at what waits
            early = captured(None)
            self.assertNotEqual(early.data_ptr(), address)
        torch.cuda.synchronize()
        torch.empty(1, device="cuda")
        late = captured(None)
        self.assertEqual(late.data_ptr(), address)


if __name__ == "__main__":
    rig.main()
