"""The allocators under test, and what may differ between them: the sizes in which they take memory from the device.

A test that depends on such a size asks `FACTS` and stays the same for all.
"""

from __future__ import annotations

import dataclasses
import os

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is particular to one allocator."""

    name: str
    conf: str  # PYTORCH_CUDA_ALLOC_CONF of its processes
    # Whether an untouched segment is one cudaMalloc with these sizes; else reserved memory is compared
    # with what was requested, rounded to `granule`.
    fixed_segments: bool
    expandable: bool  # PyTorch's own expandable segments
    granule: int = 2 * MIB  # memory is taken from the device in multiples of this
    small_limit: int = MIB  # the largest request of the small pool
    # The next request is given what was freed last, rather than what is at hand.
    reuses_at_once: bool = True

    def segment_bytes(self, size: int) -> int:
        """The reserved bytes of a segment made for one request of `size` bytes in an empty pool."""
        if size <= MIB:
            return 2 * MIB
        if self.fixed_segments and size < 10 * MIB:
            return 20 * MIB
        if self.expandable:
            return -(-size // (20 * MIB)) * 20 * MIB
        return -(-size // self.granule) * self.granule

    def rounded(self, size: int) -> int:
        """The bytes of a block for a request."""
        return max(512, -(-size // 512) * 512)


_ALL = {
    "native": Facts("native", "", fixed_segments=True, expandable=False),
    "expandable": Facts("expandable", "expandable_segments:True", fixed_segments=False, expandable=True),
    "weir": Facts("weir", "", fixed_segments=False, expandable=False, small_limit=MIB // 4,
                  reuses_at_once=False),
}

NAME = os.environ.get("WEIR_TEST_ALLOCATOR", "native")
if NAME not in _ALL:
    raise SystemExit(f"WEIR_TEST_ALLOCATOR is '{NAME}': use one of {', '.join(_ALL)}")
FACTS = _ALL[NAME]
