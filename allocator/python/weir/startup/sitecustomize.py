"""Runs at the start of each Python that `weir run` or `weir.enable()` has caused: this folder is then
the first of PYTHONPATH. Whatever sitecustomize would have run otherwise is run too."""

import importlib.util
import os
import sys


def _run_the_other() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != here]
    finder = importlib.machinery.PathFinder()
    spec = finder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


import importlib.machinery  # noqa: E402

_run_the_other()

if os.environ.get("WEIR_STARTUP"):
    try:
        from weir import _hook

        _hook.install()
    except Exception as error:  # a program must start whatever is wrong here
        print(f"weir: not in use in this process: {error}", file=sys.stderr)
