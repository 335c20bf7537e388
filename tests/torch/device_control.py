"""The simulated device, as tests drive it: held streams, other processes' memory, faults, calls."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_control: ctypes.CDLL | None = None


def test_library(name: str) -> str:
    """The path of a library of this folder that the build made."""
    return os.path.join(os.environ["WEIR_TEST_LIBRARIES"], name)


def _library() -> ctypes.CDLL:
    global _control
    if _control is None:
        _control = ctypes.CDLL(test_library("libweir_torch_device_control.so"))
        for name in ("weir_test_used_bytes", "weir_test_call_count", "weir_test_checker_reports"):
            getattr(_control, name).restype = ctypes.c_uint64
    return _control


def hold(stream: object) -> None:
    """From now on the torch stream executes nothing."""
    _library().weir_test_hold_stream(stream.device_index, ctypes.c_void_p(stream.cuda_stream))


def release(stream: object) -> None:
    _library().weir_test_release_stream(stream.device_index, ctypes.c_void_p(stream.cuda_stream))


@contextlib.contextmanager
def held(stream: object) -> Iterator[None]:
    """Work of the torch stream does not complete inside: what a long kernel is on a real device."""
    hold(stream)
    try:
        yield
    finally:
        release(stream)


def run_until_idle() -> None:
    """All work that can run is complete afterwards."""
    _library().weir_test_run_until_idle()


def used_bytes(device: int = 0) -> int:
    """Physical bytes in use, by whomever in this process."""
    return _library().weir_test_used_bytes(device)


@contextlib.contextmanager
def other_process_bytes(size: int, device: int = 0) -> Iterator[None]:
    """Inside, somebody else holds `size` bytes of the device."""
    _library().weir_test_set_other_process_bytes(device, ctypes.c_uint64(size))
    try:
        yield
    finally:
        _library().weir_test_set_other_process_bytes(device, ctypes.c_uint64(0))


def call_count(entry: str) -> int:
    """Calls of a driver function (no version suffix) in this process so far."""
    return _library().weir_test_call_count(entry.encode())


@contextlib.contextmanager
def fault(entry: str, nth: int, result: int = 2) -> Iterator[None]:
    """Inside, the nth call of the driver function fails; 2 is CUDA_ERROR_OUT_OF_MEMORY."""
    _library().weir_test_inject_fault(entry.encode(), ctypes.c_uint64(nth), result)
    try:
        yield
    finally:
        _library().weir_test_clear_faults()


def checker_reports() -> tuple[int, str]:
    """How many unordered accesses the device saw so far, and the text of the first."""
    text = ctypes.create_string_buffer(1000)
    count = _library().weir_test_checker_reports(text, ctypes.c_uint64(len(text)))
    return count, text.value.decode(errors="replace")


def clear_checker_reports() -> None:
    _library().weir_test_clear_checker_reports()
