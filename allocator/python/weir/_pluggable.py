"""Weir through PyTorch's stock CUDAPluggableAllocator, where no plugin can be compiled."""

from __future__ import annotations

import ctypes
from typing import Any

from weir import _library, _paths

_SETTERS = {
    "set_init_fn": "weir_torch_init",
    "set_reset_fn": "weir_torch_reset",
    "set_memory_fraction_fn": "weir_torch_memory_fraction",
    "set_base_alloc_fn": "weir_torch_base_alloc",
    "set_record_stream_fn": "weir_torch_record_stream",
    "set_begin_allocate_to_pool": "weir_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "weir_torch_end_allocate_to_pool",
    "set_release_pool": "weir_torch_release_pool",
}


def allocator() -> Any:
    """A ``torch.cuda.memory.CUDAPluggableAllocator`` with all that the interface has, for
    ``torch.cuda.memory.change_current_allocator``. PyTorch's statistics, snapshots, history and
    MemPools do not work with it: that needs ``weir.enable()``."""
    import torch

    _library.library()
    path = str(_paths.find().lib / "libweir_torch_pluggable.so")
    library = ctypes.CDLL(path)
    made = torch.cuda.memory.CUDAPluggableAllocator(path, "weir_torch_malloc", "weir_torch_free")
    for setter, name in _SETTERS.items():
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        getattr(made.allocator(), setter)(address)
    return made
