"""What every PyTorch test file begins with: `import rig` imports torch and installs the allocator that
WEIR_TEST_ALLOCATOR names (native, expandable or weir). Spawned children do the same by importing it. run_test sets
the environment: two simulated devices of 8 GiB, and stand-ins for NVIDIA's libraries.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import random
import subprocess
import sys
import threading
import unittest
from collections.abc import Callable, Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent

import allocators
import expected_differences
from allocators import FACTS, MIB

os.environ.pop("PYTORCH_ALLOC_CONF", None)
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ.pop("WEIR_TEST_CONF", FACTS.conf)
if not os.environ["PYTORCH_CUDA_ALLOC_CONF"]:
    del os.environ["PYTORCH_CUDA_ALLOC_CONF"]

import torch

if FACTS.name == "weir":
    import weir

    weir.enable(strict=True)

GIB = 1 << 30


def set_allocator(settings: str) -> None:
    """PYTORCH_CUDA_ALLOC_CONF at run time."""
    torch._C._accelerator_setAllocatorSettings(settings)


def settle() -> None:
    """No garbage, no pending work, no idle memory, and the settings that the process began with."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    torch.cuda.empty_cache()
    torch._C._host_emptyCache()
    set_allocator(
        f"expandable_segments:{FACTS.expandable},release_lock_on_cudamalloc:False,"
        "graph_capture_record_stream_reuse:False,pinned_use_cuda_host_register:False"
    )


class TorchTestCase(unittest.TestCase):
    """A test that begins and ends with an empty allocator. One that leaves memory in use has failed."""

    def setUp(self) -> None:
        super().setUp()
        settle()
        torch.cuda.reset_peak_memory_stats()
        before = [torch.cuda.memory_allocated(d) for d in range(torch.cuda.device_count())]
        self.addCleanup(self._check_leaks, before)

    def _check_leaks(self, before: list[int]) -> None:
        settle()
        after = [torch.cuda.memory_allocated(d) for d in range(torch.cuda.device_count())]
        if self._outcome.success and not self._outcome.expectedFailure:  # else a traceback holds it
            self.assertEqual(after, before, "the test left memory in use")


class ReportTestCase(TorchTestCase):
    """A test of a public report, run with PyTorch's allocator and with Weir."""

    def assert_only_weir(self, holds: bool, detail: str = "") -> None:
        """What the report asks for holds with Weir, and does not with PyTorch's allocator."""
        if FACTS.name == "weir":
            self.assertTrue(holds, f"the report is true of Weir {detail}")
        else:
            self.assertFalse(holds, "the report is no longer true of PyTorch's allocator")

    def native_conf(self, settings: str) -> str:
        """The settings where PyTorch's allocator is tested, else none."""
        return FACTS.conf if FACTS.name == "weir" else settings

    def expandable_where_native(self) -> None:
        if FACTS.name != "weir":
            set_allocator("expandable_segments:True")


def parametrize(name: str, values: list[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes one test of each value, named TEST_NAME_VALUE. Needs @instantiate on the class."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        test.__dict__.setdefault("parameters", []).insert(0, (name, values))
        return test

    return mark


def instantiate(case: type) -> type:
    """Replaces the parametrized tests of the class by one test per combination of values."""
    for test_name, test in list(vars(case).items()):
        combinations: list[dict[str, Any]] = [{}]
        for name, values in getattr(test, "parameters", []):
            combinations = [{**known, name: value} for known in combinations for value in values]
        if combinations == [{}]:
            continue
        delattr(case, test_name)
        for chosen in combinations:
            suffix = "_".join(f"{name}_{value}" for name, value in chosen.items())

            def one(self: unittest.TestCase, test: Any = test, chosen: Any = chosen) -> None:
                test(self, **chosen)

            setattr(case, f"{test_name}_{suffix}", one)
    return case


def run_script(code: str, conf: str | None = None, allocator: str = FACTS.name,
               **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a fresh process with the same allocator; `conf` replaces its settings."""
    env = {**os.environ, **environment, "WEIR_TEST_ALLOCATOR": allocator,
           "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    env.pop("WEIR_STARTUP", None)  # rig installs the allocator, not Weir's own start of child processes
    if conf is not None:
        env["WEIR_TEST_CONF"] = conf
    return subprocess.run([sys.executable, "-c", "import rig, torch\n" + code], env=env, text=True,
                          capture_output=True, timeout=120, check=False)


def script_output(code: str, conf: str | None = None, **environment: str) -> str:
    """What the code prints. Raises with its errors if it fails."""
    done = run_script(code, conf, **environment)
    if done.returncode != 0:
        raise AssertionError(f"the script ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def run_threads(*work: Callable[[], None]) -> None:
    """Runs the functions at once and waits; an exception in one is raised here."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001: handed to the waiting thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        if thread.is_alive():
            raise AssertionError("a thread did not end within a minute")
    if errors:
        raise errors[0]


@contextlib.contextmanager
def memory_history(*arguments: Any, **options: Any) -> Iterator[None]:
    """Records history inside; arguments as of torch.cuda.memory._record_memory_history."""
    torch.cuda.memory._record_memory_history(*arguments, **options)
    try:
        yield
    finally:
        torch.cuda.memory._record_memory_history(None)


def stat(key: str, device: int | None = None) -> int:
    return torch.cuda.memory_stats(device)[key]


def test_seed() -> int:
    """Of random tests: WEIR_TEST_SEED, else a new one. Printed, so that a failure can be run again."""
    seed = int(os.environ.get("WEIR_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"WEIR_TEST_SEED={seed}", file=sys.stderr)
    return seed


def main() -> None:
    """Runs the tests of the calling file."""
    module = sys.modules["__main__"]
    for case in vars(module).values():
        if not (isinstance(case, type) and issubclass(case, unittest.TestCase)):
            continue
        for name in unittest.defaultTestLoader.getTestCaseNames(case):
            if expected_differences.reason(case.__name__, name, FACTS.name):
                setattr(case, name, unittest.expectedFailure(getattr(case, name)))
    unittest.main(module=module, warnings="ignore")  # PyTorch's hints to people who train models
