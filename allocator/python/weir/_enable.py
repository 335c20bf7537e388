"""Making Weir the allocator of this process."""

from __future__ import annotations

import os
import sys
import traceback
import warnings

from weir import _plugin

_plugin_in_use: _plugin.Plugin | None = None
_who_initialized: str | None = None


class EnableError(RuntimeError):
    """Weir could not become PyTorch's allocator; PyTorch's own is in use, as before."""


def is_enabled() -> bool:
    """Whether this process's CUDA tensors lie in memory of Weir."""
    return _plugin_in_use is not None


def enable(*, strict: bool = False) -> bool:
    """Makes Weir the allocator of this process's CUDA tensors, before CUDA is initialized.

    Returns whether it is. If it cannot be, PyTorch's own allocator stays in use and one warning
    says why; with ``strict`` that is an ``EnableError`` instead. With WEIR_DISABLE=1 nothing is done.
    """
    global _plugin_in_use
    if _plugin_in_use is not None:
        return True
    if os.environ.get("WEIR_DISABLE") == "1":
        return False
    try:
        import torch

        if torch.cuda.is_initialized():
            raise EnableError(_already_initialized())
        plugin = _plugin.Plugin()
        plugin.call("weir_torch_enable")
    except (EnableError, _plugin.PluginError, ImportError, RuntimeError) as error:
        if strict:
            raise EnableError(str(error)) from error
        warnings.warn(
            f"Weir is not in use, PyTorch's own allocator is: {error}", RuntimeWarning, stacklevel=2
        )
        return False
    _plugin_in_use = plugin
    _have_children_follow()
    return True


def _have_children_follow() -> None:
    """Processes that this one starts from now on (torchrun, spawn, forkserver) do the same."""
    if "WEIR_STARTUP" in os.environ:
        return
    from weir import _launch

    variables = _launch.environment({"enable": True})
    os.environ.update({name: variables[name] for name in ("PYTHONPATH", "WEIR_STARTUP")})


def plugin() -> _plugin.Plugin:
    """The plugin, loaded if it is not; it need not be the allocator."""
    return _plugin_in_use or _plugin.Plugin()


def _already_initialized() -> str:
    who = _who_initialized or "before weir was imported (the first use of CUDA does it)"
    return (
        f"CUDA is initialized already, {who}. Call weir.enable() before, or start the program with "
        "'python -m weir run'."
    )


def watch_initialization() -> None:
    """From now on it is known who initializes CUDA, for the error above."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or cuda.is_initialized():
        return

    def remember() -> None:
        global _who_initialized
        frames = [
            frame
            for frame in traceback.extract_stack()
            if f"{os.sep}torch{os.sep}" not in frame.filename
            and not frame.filename.startswith(os.path.dirname(__file__))
        ]
        if frames:
            _who_initialized = f"by {frames[-1].filename}:{frames[-1].lineno} ({frames[-1].line})"

    cuda._lazy_call(remember)


watch_initialization()
