"""What `weir run` and `weir dry-run` do inside the processes that they start.

Settings come in by the environment (WEIR_STARTUP: JSON, see _launch), and nothing happens before the
program imports torch.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Calls a function once torch is imported."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_call(module: ModuleType) -> None:
            execute(module)
            self._then()

        spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec


def own_file(path: str, settings: dict[str, Any]) -> str:
    """The file of this process: the path itself in the one that was started first."""
    if os.getpid() == settings.get("main_process"):
        return path
    root, extension = os.path.splitext(path)
    return f"{root}.{os.getpid()}{extension}"


def install() -> None:
    settings = json.loads(os.environ["WEIR_STARTUP"])
    sys.meta_path.insert(0, _AfterTorch(lambda: _begin(settings)))


def _begin(settings: dict[str, Any]) -> None:
    from weir import _enable

    _enable.watch_initialization()
    if settings.get("simulated"):
        from weir import _standins

        _standins.switch_off_cudnn()
    if settings.get("enable"):
        _enable.enable()
    if path := settings.get("trace"):
        trace(own_file(path, settings))
    if path := settings.get("shadow"):
        from weir import _shadow

        _shadow.follow(own_file(path, settings))
    if path := settings.get("result"):
        from weir import _observe

        _observe.write_at_exit(own_file(path, settings))


def trace(path: str) -> None:
    """Writes what PyTorch's allocator is asked for into a file, from CUDA's initialization on."""
    import torch

    from weir import _enable

    def start() -> None:
        plugin = _enable.plugin()
        plugin.call("weir_torch_start_trace", os.fsencode(path))
        atexit.register(plugin.call, "weir_torch_stop_trace")

    torch.cuda._lazy_call(start)
