"""Builds and finds libweir_torch.so, which is Weir as PyTorch's CUDA allocator.

PyTorch's allocator is a C++ class whose layout may change with every version, so the plugin is
compiled against the headers of the PyTorch that is installed: when the package is installed, or on
first use. What was built is kept in a cache (WEIR_CACHE_DIR, else $XDG_CACHE_HOME/weir, else
~/.cache/weir) under a fingerprint of all that its layout depends on, so versions that look the same
share it.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from weir import _library, _paths

OLDEST, NEWEST = (2, 11), (2, 15)

# What the layout of CUDAAllocator and of what it passes depends on.
_HEADERS = (
    "c10/core/Allocator.h",
    "c10/core/AllocatorConfig.h",
    "c10/core/CachingDeviceAllocator.h",
    "c10/core/Stream.h",
    "c10/cuda/CUDACachingAllocator.h",
    "c10/cuda/CUDAAllocatorConfig.h",
    "c10/cuda/CUDAStream.h",
    "c10/util/Exception.h",
    "torch/csrc/cuda/CUDAPluggableAllocator.h",
)


class PluginError(RuntimeError):
    """The plugin cannot be built or loaded; the text says why, and what to do."""


def torch_folder() -> Path:
    """Of the installed PyTorch, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise PluginError("PyTorch is not installed in this Python")
    return Path(spec.origin).parent


def torch_version(torch: Path) -> str:
    text = (torch / "version.py").read_text()
    match = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    if match is None:
        raise PluginError(f"{torch / 'version.py'} names no version")
    return match.group(1)


def check_version(version: str) -> None:
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or not OLDEST <= (int(match[1]), int(match[2])) <= NEWEST:
        oldest, newest = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
        raise PluginError(
            f"PyTorch {version} is not supported: Weir knows {oldest} to {newest}. "
            "PyTorch keeps its own allocator."
        )


def cuda_include(torch: Path) -> Path:
    """A folder with CUDA's headers, which PyTorch's include."""
    site = torch.parent
    candidates = [
        Path(value) / "include"
        for name in ("CUDA_HOME", "CUDA_PATH")
        if (value := os.environ.get(name))
    ]
    if headers := os.environ.get("CUDA_HEADERS"):
        candidates.insert(0, Path(headers))
    candidates += sorted(site.glob("nvidia/cu*/include"), reverse=True)
    candidates += [site / "nvidia" / "cuda_runtime" / "include", Path("/usr/local/cuda/include")]
    # A source tree's own copy (tools/install_dependencies).
    candidates.append(_paths.find().plugin_sources.parents[1] / ".cache/cuda-headers/include")
    for folder in candidates:
        if (folder / "cuda_runtime_api.h").exists():
            return folder
    raise PluginError(
        "CUDA's headers were not found, which are needed to build Weir's PyTorch plugin: "
        "pip install 'nvidia-cuda-runtime==13.0.*', or set CUDA_HOME"
    )


def compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        if name and shutil.which(name):
            return name
    raise PluginError(
        "no C++ compiler was found, which is needed once to build Weir's PyTorch plugin: "
        "install g++ 12 or newer (apt install g++)"
    )


def fingerprint(torch: Path) -> str:
    digest = hashlib.sha256()
    paths = _paths.find()
    for path in (
        [torch / "include" / name for name in _HEADERS]
        + sorted(paths.plugin_sources.glob("*"))
        + sorted((paths.include / "weir").glob("*.h"))
    ):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(str(paths.lib).encode())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    if folder := os.environ.get("WEIR_CACHE_DIR"):
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "weir"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr]
        raise PluginError(
            f"Weir's PyTorch plugin could not be built: {lines[0].strip()}\n"
            f"the command was: {' '.join(command)}"
        )


def _compile(torch: Path, target: Path) -> None:
    paths = _paths.find()
    include = torch / "include"
    flags = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-w"]
    flags += [f"-I{paths.plugin_sources}", f"-I{paths.include}", f"-isystem{include}"]
    flags += [f"-isystem{cuda_include(torch)}", "-D_GLIBCXX_USE_CXX11_ABI=1"]
    cxx = compiler()
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        jobs = [
            (source, Path(folder) / (source.stem + ".o"))
            for source in sorted(paths.plugin_sources.glob("*.cc"))
        ]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            commands = [[cxx, *flags, "-c", str(source), "-o", str(out)] for source, out in jobs]
            list(pool.map(_run, commands))
        library = Path(folder) / target.name
        _run(
            [cxx, "-shared", "-o", str(library), *(str(out) for _, out in jobs)]
            + [f"-L{torch / 'lib'}", "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda"]
            + [f"-L{paths.lib}", "-l:libweir.so.0", f"-Wl,-rpath,{paths.lib}", "-Wl,--no-as-needed"]
            # What PyTorch's libraries need in turn is found when they are loaded.
            + ["-Wl,--allow-shlib-undefined", f"-Wl,-rpath,{torch / 'lib'}"]
        )
        library.replace(target)  # whole or not at all


def build(*, quiet: bool = False) -> Path:
    """The plugin for the installed PyTorch; compiled if it is not in the cache (about a minute)."""
    torch = torch_folder()
    version = torch_version(torch)
    check_version(version)
    folder = cache_folder() / f"torch-{fingerprint(torch)}"
    target = folder / "libweir_torch.so"
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PluginError(f"the cache cannot be written ({error}); set WEIR_CACHE_DIR") from None
    # Several processes of one job may come here at the same time; one compiles.
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            if not quiet:
                print(
                    f"weir: building the plugin for PyTorch {version} (once, about a minute)",
                    file=sys.stderr,
                )
            _compile(torch, target)
    return target


class Plugin:
    """libweir_torch.so, loaded."""

    def __init__(self) -> None:
        import torch  # noqa: F401  its libraries must be there first

        path = build()
        _library.library()
        try:
            self._lib = ctypes.CDLL(str(path))
        except OSError as error:
            raise PluginError(f"Weir's PyTorch plugin cannot be loaded: {error}") from None

    def call(self, name: str, *arguments: object) -> None:
        error = ctypes.create_string_buffer(4096)
        function = getattr(self._lib, name)
        if function(*arguments, error, ctypes.c_size_t(len(error))) != 0:
            raise PluginError(error.value.decode(errors="replace"))
