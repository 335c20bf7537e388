"""Helpers of tests about the pools of CUDA graphs and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Pool = tuple[int, int]
Segment = dict[str, Any]


def segments_of(pool: Pool) -> list[Segment]:
    return [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool]


def segments_of_all_graphs() -> list[Segment]:
    return [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] != (0, 0)]


def live_blocks(pool: Pool) -> int:
    return sum(b["state"] == "active_allocated" for s in segments_of(pool) for b in s["blocks"])


def int8_cuda(size: int) -> torch.Tensor:
    return torch.ones([size], device="cuda", dtype=torch.uint8)


def cudagraphify(function: Callable[..., Any], inputs: list[torch.Tensor],
                 pool: Pool | None = None) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Runs the function once on a side stream, then captures it; its graph and the captured outputs."""
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function(*inputs)
    stream.synchronize()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, pool=pool):
        outputs = function(*inputs)
    return graph, outputs


def checkpoint(pool: Pool, device: int = 0) -> Any:
    return torch._C._cuda_getCheckpointState(device, pool)


def restore(state: Any, stale: list[torch.Tensor] = [], adopted: list[torch.Tensor] = [],
            device: int = 0) -> None:
    """Sets the pool back; `stale` are tensors whose memory is freed by it, `adopted` get deleters."""
    torch._C._cuda_setCheckpointPoolState(
        device, state, [t.untyped_storage()._cdata for t in stale],
        [t.untyped_storage()._cdata for t in adopted])


def same_memory(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Makes a tensor over the memory of this one, which owns nothing."""
    storage = tensor.untyped_storage()
    address, size, device = storage.data_ptr(), storage.nbytes(), tensor.device
    dtype, shape, stride, offset = tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()

    def make() -> torch.Tensor:
        over = torch._C._construct_storage_from_data_pointer(address, device, size)
        made = torch.empty([0], device=device, dtype=dtype)
        made.set_(source=over, storage_offset=offset, size=shape, stride=stride)
        return made

    return make
