"""TestCachingHostAllocatorCudaGraph: pinned memory that is made during captures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import rig  # before torch
import torch

from rig import TorchTestCase, instantiate, parametrize, set_allocator


@contextlib.contextmanager
def pinned_settings(register: bool, background: bool = False) -> Iterator[None]:
    set_allocator(f"pinned_use_cuda_host_register:{register},pinned_num_register_threads:8,"
                  f"pinned_use_background_threads:{background}")
    try:
        yield
    finally:
        set_allocator("pinned_use_cuda_host_register:False,pinned_use_background_threads:False")


def capture(graph: torch.cuda.CUDAGraph, pool: tuple[int, int] | None = None) -> torch.cuda.graph:
    return torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local")


def copied_to_device(source: torch.Tensor) -> torch.Tensor:
    return torch.empty(8, device="cuda").copy_(source, non_blocking=True)


@instantiate
class TestCachingHostAllocatorCudaGraph(TorchTestCase):
    @parametrize("use_cuda_host_register", [True, False])
    def test_pin_memory_no_use(self, use_cuda_host_register: bool) -> None:
        with pinned_settings(use_cuda_host_register), capture(torch.cuda.CUDAGraph()):
            first, second = (torch.empty(8, pin_memory=True) for _ in range(2))
        self.assertNotEqual(first.data_ptr(), second.data_ptr())

    @parametrize("use_cuda_host_register", [True, False])
    def test_pin_memory_no_use2(self, use_cuda_host_register: bool) -> None:
        # What the capture has not used may be used again.
        with pinned_settings(use_cuda_host_register), capture(torch.cuda.CUDAGraph()):
            first = torch.randn(8).pin_memory()
            address = first.data_ptr()
            del first
            second = torch.randn(8).pin_memory()
        self.assertEqual(second.data_ptr(), address)

    @parametrize("use_cuda_host_register", [True, False])
    def test_pin_memory_use(self, use_cuda_host_register: bool) -> None:
        # What the capture copies from is read at each replay.
        with pinned_settings(use_cuda_host_register), capture(torch.cuda.CUDAGraph()):
            first = torch.randn(8).pin_memory()
            copied_to_device(first)
            address = first.data_ptr()
            del first
            second = torch.randn(8).pin_memory()
        self.assertNotEqual(second.data_ptr(), address)

    @parametrize("use_background_threads", [True, False])
    @parametrize("use_cuda_host_register", [True, False])
    @parametrize("use_memory", [True, False])
    @parametrize("delete_memory", [True, False])
    def test_two_graphs(self, use_background_threads: bool, use_cuda_host_register: bool,
                        use_memory: bool, delete_memory: bool) -> None:
        with pinned_settings(use_cuda_host_register, use_background_threads):
            pool = torch.cuda.graph_pool_handle()
            graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
            addresses, kept = [], []
            for graph in graphs:
                with capture(graph, pool):
                    data = torch.randn(8).pin_memory()
                    if use_memory:
                        copied_to_device(data)
                    addresses.append(data.data_ptr())
                    if not delete_memory:
                        kept.append(data)
                    del data
        self.assertEqual(addresses[0] == addresses[1], delete_memory and not use_memory)

    def test_replay_reads_what_was_pinned(self) -> None:
        graph = torch.cuda.CUDAGraph()
        with capture(graph):
            source = torch.empty(8).pin_memory()
            target = copied_to_device(source)
        for value in (1.0, 2.0):
            source.fill_(value)
            graph.replay()
            self.assertEqual(target.tolist(), [value] * 8)

    def test_unpinned_memory_use(self) -> None:
        for to_device in (True, False):
            with self.assertRaisesRegex(RuntimeError, "during CUDA graph capture|while a stream captures"):
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    host, device = torch.empty(8), torch.empty(8, device="cuda")
                    if to_device:
                        device.copy_(host, non_blocking=True)
                    else:
                        host.copy_(device, non_blocking=True)


if __name__ == "__main__":
    rig.main()
