"""Starting other programs with Weir: their command line and environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from weir import _paths, _plugin, _standins


class LaunchError(RuntimeError):
    """The program cannot be started; the text says why."""


def command_line(program: list[str]) -> list[str]:
    """What the user wants to run: a Python script, -m MODULE, -c TEXT, or any other command."""
    if not program:
        raise LaunchError("name a program: a script, -m MODULE, or a command such as torchrun")
    if program[0] in ("-m", "-c") or program[0].endswith(".py"):
        return [sys.executable, *program]
    return program


def environment(settings: dict[str, Any]) -> dict[str, str]:
    """The environment with which a program, and each Python that it starts, follows the settings of
    _hook."""
    package = Path(__file__).resolve().parent
    path = [str(package / "startup"), str(package.parent)]
    path += filter(None, [os.environ.get("PYTHONPATH")])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "WEIR_STARTUP": json.dumps(settings),
    }


def simulated_environment(memory: str, devices: int) -> dict[str, str]:
    """What has a process find simulated GPUs, of so much memory each, and nothing else."""
    torch = _plugin.torch_folder()
    version = _plugin.torch_version(torch)
    folder = _plugin.cache_folder() / "standins" / f"torch-{version}"
    simulated = _standins.environment(torch / "lib", _paths.find().simulated, folder)
    preload = simulated["LD_PRELOAD"]
    # What is named twice would be loaded twice.
    names = {os.path.basename(path) for path in preload.split(":")}
    own = [
        path
        for path in os.environ.get("LD_PRELOAD", "").split(":")
        if path and os.path.basename(path) not in names
    ]
    # Work is complete as soon as it is submitted: how late a real GPU would be is unknown, and
    # allocators that ask more often must not look better for it.
    options = {"sim_lag": "0"}
    for option in filter(None, os.environ.get("WEIR_CONF", "").split(",")):
        key, _, value = option.partition(":")
        options[key] = value
    options.update(sim_memory=memory, sim_devices=str(devices))
    return {
        **simulated,
        "LD_PRELOAD": ":".join([preload, *own]),
        "WEIR_CONF": ",".join(f"{key}:{value}" for key, value in options.items()),
        "WEIR_SIMCUDA_FORCE": "1",
        # Triton's kernels would have to be compiled for a real GPU, which no driver here loads.
        "TORCHDYNAMO_DISABLE": "1",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(devices))),
    }


def weir_command(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs the weir command (replay, fit, trace). Not on the simulated libraries."""
    command = _paths.find().command
    if not command.exists():
        raise LaunchError(f"{command} is not there; build it first (tools/quickstart)")
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "WEIR_CONF")}
    return subprocess.run(
        [str(command), *arguments], capture_output=True, text=True, check=False, env=clean
    )
