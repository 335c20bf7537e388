"""weir run --shadow: PyTorch's own allocator serves the program, and Weir says at its end what it
would have held.

The program's allocations are written down as they happen and replayed through Weir on a simulated
device afterwards: nothing of Weir touches the program's memory.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import tempfile

from weir import _hook, _launch, _sizes


def follow(path: str) -> None:
    import torch

    # Registered first, so run last: the trace is complete then.
    torch.cuda._lazy_call(lambda: atexit.register(_report, path))
    _hook.trace(path)


def _report(path: str) -> None:
    import torch

    total = max(
        torch.cuda.get_device_properties(device).total_memory
        for device in range(torch.cuda.device_count())
    )
    peaks = [
        (stats["requested_bytes.all.peak"], stats["reserved_bytes.all.peak"])
        for stats in map(torch.cuda.memory_stats, range(torch.cuda.device_count()))
        if stats.get("allocation.all.allocated", 0)
    ]
    if not peaks:
        return
    with tempfile.TemporaryDirectory(prefix="weir-shadow-") as folder:
        report = os.path.join(folder, "replay.json")
        done = _launch.weir_command(["replay", path, "--memory", str(total), "--json", report])
        if not os.path.exists(report):
            print(f"weir: no shadow report: {done.stderr.strip()}", file=sys.stderr)
            return
        with open(report) as file:
            run = json.load(file)["runs"][0]
    theirs = sum(reserved for _, reserved in peaks)
    print(f"\nweir: what this program's memory would have been (trace: {path})", file=sys.stderr)
    print(f"  peak requested          {_sizes.show(run['peak_requested_bytes'])}", file=sys.stderr)
    print(f"  PyTorch's own reserved  {_sizes.show(theirs)}", file=sys.stderr)
    if not run["completed"]:
        print(f"  Weir                    did not complete: {run['error']}", file=sys.stderr)
        return
    ours = run["peak_reserved_bytes"]
    print(
        f"  Weir would have         {_sizes.show(ours)} "
        f"({'spares' if ours <= theirs else 'takes'} {_sizes.show(abs(theirs - ours))})",
        file=sys.stderr,
    )
