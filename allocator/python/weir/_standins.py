"""Stand-ins for NVIDIA's math and communication libraries, so that PyTorch's CUDA wheel runs on the
simulated GPU with nothing of NVIDIA installed.

    python -m weir._standins TORCH_LIB OUT

reads the wheel's libraries in TORCH_LIB (.../site-packages/torch/lib), finds what they need of
libraries that no system has, and compiles one shared library for each into OUT. The libraries have
the names, symbols and symbol versions that the wheel asks for. Their functions compute nothing (see
_standin_functions.py); the CUDA runtime and driver are not among them: they are the simulated
device's (tools/simcuda).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import _standin_functions
from ._elf import Symbol, read_imports
from ._standin_functions import PRELUDE, Functions, Version

# Of NVIDIA's libraries those that the simulated device is. The rest are recognized by their names.
_SIMULATED = re.compile(r"lib(cuda|cudart)\.so\.\d+")
_NVIDIA = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+")
# Where the wheel does not say which versions it was made for.
_DEFAULT_VERSIONS: dict[str, Version] = {
    "cuda": (13, 0, 2), "cudnn": (9, 19, 0), "nccl": (2, 28, 9), "nvshmem": (3, 4, 5),
}
_REQUIREMENT = re.compile(
    r"^Requires-Dist: (?:nvidia-)?(cuda|cudnn|nccl|nvshmem)(?:-toolkit)?(?:-cu\d+)?(?:\[.*\])?"
    r"==([\d.]+)", re.MULTILINE)
_STAMP = "standins.json"
# For processes on the simulated GPU. PyTorch keeps what NVRTC made in a folder of the user's: images
# of the stand-in would fail on a real GPU later, and real ones do here.
ENVIRONMENT = {"USE_PYTORCH_KERNEL_CACHE": "0"}


class StandinError(RuntimeError):
    """Stand-ins cannot be made; the text says why and what to do."""


def _wheel_versions(torch_lib_dir: Path) -> dict[str, Version]:
    """The versions that the wheel requires, from its metadata."""
    versions = dict(_DEFAULT_VERSIONS)
    for metadata in torch_lib_dir.parent.parent.glob("torch-*.dist-info/METADATA"):
        for name, text in _REQUIREMENT.findall(metadata.read_text(errors="replace")):
            versions[name] = tuple(int(part) for part in text.split(".") if part)
    return versions


def _prefix(library: str) -> str:
    """"cublaslt" of "libcublasLt.so.13"; compared without regard to case."""
    return library.removeprefix("lib").partition(".so")[0].lower()


def wanted_symbols(torch_lib_dir: Path) -> dict[str, list[Symbol]]:
    """What the wheel's libraries import from each NVIDIA library that it names. Symbols without a
    version are told apart by the longest library name that they begin with."""
    needed: set[str] = set()
    symbols: set[Symbol] = set()
    for path in sorted(torch_lib_dir.glob("*.so")):
        imports = read_imports(path)
        needed.update(imports.needed)
        symbols.update(imports.symbols)
    wanted: dict[str, list[Symbol]] = {
        name: [] for name in sorted(needed)
        if _NVIDIA.fullmatch(name) and not _SIMULATED.fullmatch(name)
    }
    by_prefix = sorted(((_prefix(name), name) for name in wanted), key=lambda p: -len(p[0]))
    for symbol in sorted(symbols, key=lambda s: s.name):
        library = symbol.library
        if not library and not symbol.name.startswith("_Z"):
            name = symbol.name.lower()
            library = next((so for prefix, so in by_prefix if name.startswith(prefix)), "")
        if library in wanted:
            wanted[library].append(symbol)
    return wanted


def _version_script(symbols: Iterable[Symbol]) -> str:
    """A node for each version. A reference without version is satisfied by any of them."""
    nodes: dict[str, list[str]] = {}
    for symbol in symbols:
        nodes.setdefault(symbol.version, []).append(symbol.name)
    unversioned = nodes.pop("", [])
    if not nodes:
        return ""
    first = next(iter(nodes))
    nodes[first] += unversioned
    return "".join(f"{version} {{ global: {'; '.join(names)}; }};\n"
                   for version, names in nodes.items())


def _compile(library: str, symbols: list[Symbol], functions: Functions, folder: Path) -> None:
    names = sorted({symbol.name for symbol in symbols})
    source = folder / f"{library}.c"
    source.write_text(PRELUDE + "\n".join(functions.define(name) for name in names) + "\n")
    command = [*os.environ.get("CC", "cc").split(), "-w", "-O1", "-fPIC", "-shared", "-std=gnu11",
               f"-Wl,-soname,{library}", "-o", str(folder / library), str(source)]
    if script := _version_script(symbols):
        versions = folder / f"{library}.map"
        versions.write_text(script)
        command.append(f"-Wl,--version-script={versions}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise StandinError(f"cannot run the C compiler '{command[0]}' ({error}); install one "
                           "(Debian: apt-get install gcc) or set CC") from error
    if done.returncode != 0:
        raise StandinError(f"cannot compile the stand-in for {library}:\n{done.stderr}")


def _fingerprint(torch_lib_dir: Path, versions: Mapping[str, Version]) -> str:
    """Changes with the wheel and with this program."""
    digest = hashlib.sha256(json.dumps(versions, sort_keys=True).encode())
    for path in (Path(__file__), Path(_standin_functions.__file__)):
        digest.update(path.read_bytes())
    for path in sorted(torch_lib_dir.glob("*.so")):
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _made_before(out_dir: Path, fingerprint: str) -> list[Path]:
    try:
        stamp = json.loads((out_dir / _STAMP).read_text())
        paths = [out_dir / str(name) for name in stamp["libraries"]]
        if stamp["fingerprint"] == fingerprint and all(path.is_file() for path in paths):
            return paths
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return []


def build_standins(torch_lib_dir: Path, out_dir: Path) -> list[Path]:
    """Makes the stand-ins in out_dir, unless those of this wheel are there, and returns them.
    Processes may do so at the same time. Raises StandinError, ValueError or OSError."""
    if not (torch_lib_dir / "libtorch_cuda.so").is_file():
        raise StandinError(f"{torch_lib_dir} has no libtorch_cuda.so: it is not the folder torch/lib "
                           "of a PyTorch wheel with CUDA")
    versions = _wheel_versions(torch_lib_dir)
    fingerprint = _fingerprint(torch_lib_dir, versions)
    if made := _made_before(out_dir, fingerprint):
        return made
    wanted = wanted_symbols(torch_lib_dir)
    functions = Functions(versions)
    out_dir.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="making.", dir=out_dir))
    try:
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            made_all = [workers.submit(_compile, library, symbols, functions, work)
                        for library, symbols in wanted.items()]
            for done in made_all:
                done.result()
        stamp = {"fingerprint": fingerprint, "libraries": list(wanted)}
        (work / _STAMP).write_text(json.dumps(stamp))
        for name in (*wanted, _STAMP):  # the stamp last: it says that the rest is there
            os.replace(work / name, out_dir / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return [out_dir / name for name in wanted]


def preloads(sim_dir: Path, standins: Iterable[Path]) -> str:
    """The value of LD_PRELOAD with which a process runs on the simulated GPU. sim_dir has the
    simulated libcuda.so.1, libcudart.so.13 and libnvidia-ml.so.1."""
    faces = ("libcuda.so.1", "libcudart.so.13", "libnvidia-ml.so.1")
    paths = [*(sim_dir / name for name in faces), *standins]
    for path in paths:
        if not path.is_file():
            raise StandinError(f"{path} is not there; build it first")
        if re.search(r"[\s:]", str(path)):
            raise StandinError(f"{path}: LD_PRELOAD cannot name a path with spaces or colons")
    return ":".join(str(path.resolve()) for path in paths)


def environment(torch_lib: Path, sim_dir: Path, out_dir: Path) -> dict[str, str]:
    """What to set so that a process runs on the simulated GPU. The stand-ins are made in out_dir."""
    return {**ENVIRONMENT, "LD_PRELOAD": preloads(sim_dir, build_standins(torch_lib, out_dir))}


def switch_off_cudnn() -> None:
    """Has PyTorch in this process compute without cuDNN, whose functions fail on the simulated GPU.
    Initializes nothing."""
    import torch  # here, so that the rest of the module works where there is none

    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m weir._standins", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch_lib", type=Path, metavar="TORCH_LIB")
    parser.add_argument("out", type=Path, metavar="OUT")
    options = parser.parse_args(arguments)
    try:
        for path in build_standins(options.torch_lib, options.out):
            print(path)
    except (StandinError, ValueError, OSError) as error:
        print(f"weir._standins: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
