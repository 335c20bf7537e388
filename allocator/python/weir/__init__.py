"""Weir: a caching allocator for CUDA memory that takes the place of PyTorch's own.

    import weir
    weir.enable()        # before the first use of CUDA

From then on every CUDA tensor of this process lies in memory of Weir, and all of ``torch.cuda``'s
memory functions work on it. ``python -m weir run PROGRAM`` does the same for a program that does not
know of Weir, and ``python -m weir dry-run PROGRAM`` runs one on a machine without a GPU.

Settings: ``WEIR_CONF`` (see the README's table), PyTorch's ``PYTORCH_CUDA_ALLOC_CONF`` where its keys
make sense, and ``WEIR_DISABLE=1``, with which ``enable`` leaves PyTorch alone.
"""

from weir._enable import EnableError, enable, is_enabled
from weir._library import CompactResult, WeirError, compact, oom_report, stats, trim, version

__all__ = [
    "CompactResult",
    "EnableError",
    "WeirError",
    "compact",
    "enable",
    "is_enabled",
    "oom_report",
    "stats",
    "trim",
    "version",
]
