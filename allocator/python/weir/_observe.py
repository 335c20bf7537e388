"""What a process of a dry run did to memory: written as JSON when it ends."""

from __future__ import annotations

import atexit
import json
import sys
from collections import Counter
from types import TracebackType
from typing import Any

# Newest allocations and frees that are looked at for who held memory at the peak.
_MAX_ENTRIES = 1_000_000
_MOST_HOLDERS = 5
_MOST_FRAMES = 6
_MOST_TEXT = 2000


def write_at_exit(path: str) -> None:
    import torch

    failure: dict[str, str] = {}
    before = sys.excepthook

    def remember(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        failure["kind"] = kind.__name__
        failure["text"] = str(error)[:_MOST_TEXT]
        before(kind, error, trace)

    sys.excepthook = remember
    torch.cuda._lazy_call(
        lambda: torch.cuda.memory._record_memory_history(
            "all", context="alloc", stacks="python", max_entries=_MAX_ENTRIES
        )
    )
    atexit.register(_write, path, failure)


def _write(path: str, failure: dict[str, str]) -> None:
    import torch

    import weir

    result: dict[str, Any] = {"failure": failure or None, "devices": []}
    if torch.cuda.is_initialized():
        traces = torch.cuda.memory._snapshot()["device_traces"]
        for device in range(torch.cuda.device_count()):
            stats = torch.cuda.memory_stats(device)
            if not stats.get("allocation.all.allocated", 0) and not stats.get("num_ooms", 0):
                continue
            result["devices"].append(
                {
                    "device": device,
                    "allocations": stats["allocation.all.allocated"],
                    "peak_requested_bytes": stats["requested_bytes.all.peak"],
                    "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
                    "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
                    "device_allocs": stats["num_device_alloc"],
                    "device_frees": stats["num_device_free"],
                    "out_of_memory": stats["num_ooms"],
                    "holders_at_peak": holders_at_peak(traces[device]),
                    "oom_report": weir.oom_report(device) if weir.is_enabled() else "",
                }
            )
    with open(path, "w") as file:
        json.dump(result, file)


def holders_at_peak(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Who held most when most was allocated, by the stack that allocated it."""
    sizes: dict[int, int] = {}
    now = peak = peak_at = 0
    for index, entry in enumerate(trace):
        if entry["action"] == "alloc":
            sizes[entry["addr"]] = entry["size"]
            now += entry["size"]
            if now > peak:
                peak, peak_at = now, index
        elif entry["action"] == "free_requested":
            now -= sizes.pop(entry["addr"], 0)
    live: dict[int, tuple[int, str]] = {}
    for entry in trace[: peak_at + 1]:
        if entry["action"] == "alloc":
            live[entry["addr"]] = (entry["size"], _describe(entry.get("frames", [])))
        elif entry["action"] == "free_requested":
            live.pop(entry["addr"], None)
    by_stack: Counter[str] = Counter()
    blocks: Counter[str] = Counter()
    for size, stack in live.values():
        by_stack[stack] += size
        blocks[stack] += 1
    return [
        {"bytes": size, "blocks": blocks[stack], "stack": stack.splitlines()}
        for stack, size in by_stack.most_common(_MOST_HOLDERS)
    ]


def _describe(frames: list[dict[str, Any]]) -> str:
    lines = [
        f"{frame['filename']}:{frame['line']} {frame['name']}"
        for frame in frames
        if not frame["filename"].startswith("<frozen")
    ]
    return "\n".join(lines[:_MOST_FRAMES]) or "(unknown)"
