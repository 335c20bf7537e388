"""Where the package's files are: in an installed package, or in a source tree with its build."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paths:
    lib: Path  # libweir.so, libsimcuda.so
    simulated: Path  # libcudart.so.13 and libcuda.so.1 of the simulated device
    command: Path  # the weir command
    include: Path  # weir/*.h
    plugin_sources: Path


def find() -> Paths:
    """Of a source tree the build folder can be named by WEIR_BUILD (default: build/)."""
    package = Path(__file__).resolve().parent
    if (package / "lib" / "libweir.so.0").exists():
        return Paths(
            lib=package / "lib",
            simulated=package / "lib" / "simcuda",
            command=package / "bin" / "weir",
            include=package / "include",
            plugin_sources=package / "torch",
        )
    root = package.parents[2]
    build = Path(os.environ.get("WEIR_BUILD", root / "build")).resolve()
    return Paths(
        lib=build / "lib",
        simulated=build / "lib" / "simcuda",
        command=build / "bin" / "weir",
        include=root / "allocator" / "include",
        plugin_sources=root / "allocator" / "torch",
    )
