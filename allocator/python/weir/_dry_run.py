"""python -m weir dry-run: a real PyTorch program on a simulated GPU, to learn whether it fits.

The program runs once for each allocator: Weir, PyTorch's own, and PyTorch's expandable segments.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir import _launch, _plugin, _sizes

SCHEMA = "weir-dry-run/1"
_ALLOCATORS = ("weir", "native", "expandable")
_NAMES = {"weir": "Weir", "native": "PyTorch", "expandable": "PyTorch, expandable segments"}
# How much larger the GPU is on which the need of a program that does not fit is found out.
_LARGER = 16
_NOTES = """\
This was a simulated GPU. Its kernels compute nothing and take no time, so what depends on computed values (loss, early
stopping, routing of experts, lengths of generated text) may differ from a real run, and memory that
waits for another stream comes back at once (WEIR_CONF=sim_lag:N: N operations later). cuDNN is switched off there: its workspaces are not counted. Neither is what other libraries
(cuBLAS, NCCL) and the CUDA context take for themselves, about 0.5 to 1 GiB. Code compiled by Triton
(torch.compile) is not run."""


@dataclass(frozen=True)
class Run:
    """One run of the program with one allocator."""

    allocator: str
    memory: int
    status: int
    result: dict[str, Any]

    @property
    def out_of_memory(self) -> bool:
        failure = self.result.get("failure") or {}
        return failure.get("kind") == "OutOfMemoryError"

    @property
    def completed(self) -> bool:
        return self.status == 0

    @property
    def devices(self) -> list[dict[str, Any]]:
        return self.result.get("devices", [])

    def most(self, key: str) -> int:
        return max((device[key] for device in self.devices), default=0)


def _environment(allocator: str, memory: int, gpus: int, result: str) -> dict[str, str]:
    settings = {
        "simulated": True,
        "enable": allocator == "weir",
        "result": result,
        "main_process": None,  # the first process to come names the file; see _run_once
    }
    variables = _launch.environment(settings)
    variables.update(_launch.simulated_environment(str(memory), gpus))
    if allocator != "weir":
        variables["WEIR_DISABLE"] = "1"
    if allocator == "expandable":
        own = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF")
        parts = [own] if own else []
        variables["PYTORCH_CUDA_ALLOC_CONF"] = ",".join([*parts, "expandable_segments:True"])
    return variables


def _run_once(
    allocator: str, memory: int, gpus: int, program: list[str], *, show_output: bool
) -> Run:
    command = _launch.command_line(program)
    with tempfile.TemporaryDirectory(prefix="weir-dry-run-") as folder:
        variables = _environment(allocator, memory, gpus, os.path.join(folder, "result.json"))
        silent = None if show_output else subprocess.DEVNULL
        try:
            done = subprocess.run(
                command, env=variables, stdout=silent, stderr=silent, check=False
            )
        except OSError as error:
            raise _launch.LaunchError(f"{command[0]} cannot be started: {error}") from None
        # One file for each process that imported torch.
        results = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    return Run(allocator, memory, done.returncode, _join(results))


def _join(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Processes that each had GPUs of their own: their devices in one list."""
    failures = [result["failure"] for result in results if result["failure"]]
    devices = [device for result in results for device in result["devices"]]
    return {"failure": failures[0] if failures else None, "devices": devices}


def main(options: argparse.Namespace) -> int:
    memory = _sizes.parse(options.gpu_memory)
    if options.gpus < 1 or options.gpus > 16:
        raise ValueError(f"--gpus {options.gpus}: from 1 to 16")
    _launch.command_line(options.program)  # says what is wrong before the long part
    _plugin.build()
    allocators = options.allocators.split(",")
    if unknown := [each for each in allocators if each not in _ALLOCATORS]:
        raise ValueError(f"--allocators {unknown[0]}: use {', '.join(_ALLOCATORS)}")
    runs = [
        _run_once(a, memory, options.gpus, options.program, show_output=a == allocators[0])
        for a in allocators
    ]
    broken = next((run for run in runs if not run.completed and not run.out_of_memory), None)
    larger = {
        run.allocator: _run_once(
            run.allocator, memory * _LARGER, options.gpus, options.program, show_output=False
        )
        for run in runs
        if run.out_of_memory
    }
    _print(runs, larger, memory, options.gpus)
    if options.json:
        Path(options.json).write_text(json.dumps(_as_json(runs, larger), indent=1) + "\n")
    if broken is not None:
        failure = broken.result.get("failure") or {}
        print(
            f"\nweir: the program failed with {_NAMES[broken.allocator]} (status {broken.status}"
            + (f", {failure['kind']}: {failure['text']}" if failure else "")
            + "), and not for want of memory",
            file=sys.stderr,
        )
        return 2
    return 0 if runs[0].completed else 1  # the first one's answer


def _as_json(runs: list[Run], larger: dict[str, Run]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "runs": [
            {
                "allocator": run.allocator,
                "memory_bytes": run.memory,
                "completed": run.completed,
                "out_of_memory": run.out_of_memory,
                **run.result,
            }
            for run in [*runs, *larger.values()]
        ],
    }


def _print(runs: list[Run], larger: dict[str, Run], memory: int, gpus: int) -> None:
    print(f"\nDry run on {gpus} simulated GPU{'s' if gpus > 1 else ''} of {_sizes.show(memory)}\n")
    print(f"{'allocator':30} {'fits':>4} {'peak requested':>15} {'peak reserved':>15} {'ratio':>6}")
    for run in runs:
        requested, reserved = run.most("peak_requested_bytes"), run.most("peak_reserved_bytes")
        ratio = f"{reserved / requested:.3f}" if requested else "-"
        fits = "yes" if run.completed else "no" if run.out_of_memory else "?"
        print(
            f"{_NAMES[run.allocator]:30} {fits:>4} {_sizes.show(requested):>15} "
            f"{_sizes.show(reserved):>15} {ratio:>6}"
        )
    for allocator, run in larger.items():
        if run.completed:
            print(
                f"\nWith {_NAMES[allocator]} it completes on a larger GPU, where it reserves up to "
                f"{_sizes.show(run.most('peak_reserved_bytes'))} for a peak of "
                f"{_sizes.show(run.most('peak_requested_bytes'))} requested."
            )
    _print_holders(larger.get("weir", runs[0]))
    for device in runs[0].devices:
        if runs[0].out_of_memory and device["oom_report"]:
            print(f"\nWhy it did not fit (GPU {device['device']}):\n{device['oom_report']}")
    print(f"\n{_NOTES}")


def _print_holders(run: Run) -> None:
    for device in run.devices:
        if not device["holders_at_peak"]:
            continue
        print(f"\nWhat held memory at the peak (GPU {device['device']}):")
        for holder in device["holders_at_peak"]:
            count = holder["blocks"]
            print(f"  {_sizes.show(holder['bytes'])} in {count} block{'s' if count > 1 else ''}")
            for line in holder["stack"]:
                print(f"      {line}")
