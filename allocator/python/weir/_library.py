"""libweir, as far as Python programs need it."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from weir import _paths

# Fields of weir_stats_t (weir/weir.h), in its order.
_TRIPLES = (
    "requested_bytes",
    "allocated_bytes",
    "active_bytes",
    "reserved_bytes",
    "allocations",
    "active_blocks",
    "handles",
)
_SINGLES = (
    "cached_bytes",
    "misses",
    "remapped_bytes",
    "waits",
    "out_of_memory",
    "deferred_frees",
    "driver_time_ns",
    "memory_limit",
    "mechanisms_off",
    "borrowed_blocks",
    "streams",
    "stitched_bytes",
    "merged_granules",
    "shared_blocks",
    "served_complete",
    "served_mapped",
    "served_borrowed",
    "served_waited",
    "served_callbacks",
    "served_merged",
    "copied_bytes",
    "pinned_bytes",
    "grow_only",
    "_unused",
)


class WeirError(RuntimeError):
    """A call into Weir failed; the text says what was wrong and what to do."""


class _Stats(ctypes.Structure):
    _fields_ = [
        (prefix + name, ctypes.c_uint64) for name in _TRIPLES for prefix in ("", "peak_", "total_")
    ] + [(name, ctypes.c_uint64) for name in _SINGLES]


class _CompactOptions(ctypes.Structure):
    _fields_ = [
        ("keep_bytes", ctypes.c_size_t),
        ("max_ms", ctypes.c_uint32),
        ("merge", ctypes.c_int),
        ("unused", ctypes.c_uint64 * 4),
    ]


class _CompactResult(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "merged_granules",
            "copied_bytes",
            "released_bytes",
            "reserved_bytes",
            "driver_time_ns",
            "unused",
        )
    ]


@dataclass(frozen=True)
class CompactResult:
    """What ``compact`` has done; bytes, and nanoseconds in driver calls."""

    merged_granules: int
    copied_bytes: int
    released_bytes: int
    reserved_bytes: int
    driver_time_ns: int


@functools.cache
def library() -> ctypes.CDLL:
    """Opens libweir once. It must be the one that the plugin was linked with."""
    path = _paths.find().lib / "libweir.so.0"
    try:
        lib = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise WeirError(f"libweir cannot be loaded: {error}. Build it (tools/quickstart).") from None
    lib.weir_last_error.restype = ctypes.c_char_p
    lib.weir_version.restype = ctypes.c_char_p
    lib.weir_get_stats.argtypes = [ctypes.c_int, ctypes.POINTER(_Stats)]
    lib.weir_trim.argtypes = [ctypes.c_int, ctypes.c_size_t]
    lib.weir_compact.argtypes = [
        ctypes.c_int,
        ctypes.POINTER(_CompactOptions),
        ctypes.POINTER(_CompactResult),
    ]
    lib.weir_oom_report.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    lib.weir_oom_report.restype = ctypes.c_size_t
    return lib


def check(status: int) -> None:
    if status != 0:
        raise WeirError(library().weir_last_error().decode(errors="replace"))


def version() -> str:
    return library().weir_version().decode()


def stats(device: int = 0) -> dict[str, int]:
    """What Weir counts on a device, by the names of ``weir_stats_t``. Bytes, counts, nanoseconds."""
    result = _Stats()
    check(library().weir_get_stats(device, ctypes.byref(result)))
    return {name: getattr(result, name) for name, _ in _Stats._fields_ if name != "_unused"}


def trim(device: int = 0, keep_bytes: int = 0) -> None:
    """Gives idle memory back to the driver until at most ``keep_bytes`` are reserved, or nothing
    idle is left. Waits for memory that was freed but is still used."""
    check(library().weir_trim(device, keep_bytes))


def compact(
    device: int = 0, *, keep_bytes: int = 0, max_ms: int = 0, merge: bool = True
) -> CompactResult:
    """Merges partly used pages (where the option ``mesh`` allows it) and gives back what is idle.
    No pointer changes. Meanwhile no other thread may give the device work."""
    options = _CompactOptions(keep_bytes=keep_bytes, max_ms=max_ms, merge=int(merge))
    result = _CompactResult()
    check(library().weir_compact(device, ctypes.byref(options), ctypes.byref(result)))
    return CompactResult(
        result.merged_granules,
        result.copied_bytes,
        result.released_bytes,
        result.reserved_bytes,
        result.driver_time_ns,
    )


def oom_report(device: int = 0, *, json: bool = False) -> str:
    """Why the device's last request failed for want of memory; "" if none did."""
    lib = library()
    size = lib.weir_oom_report(device, int(json), None, 0)
    if size == 0:
        return ""
    buffer = ctypes.create_string_buffer(size + 1)
    lib.weir_oom_report(device, int(json), buffer, len(buffer))
    return buffer.value.decode(errors="replace")
