"""python -m weir: running PyTorch programs with Weir.

    python -m weir run [--trace FILE] [--shadow] PROGRAM ...
    python -m weir dry-run --gpu-memory 24GiB [--gpus N] PROGRAM ...
    python -m weir build-plugin
    python -m weir replay|fit|trace ...       as the weir command (tools/replay/README.md)

PROGRAM is a Python script with its arguments, -m MODULE, -c TEXT, or another command (torchrun ...).
"""

from __future__ import annotations

import argparse
import os
import sys

from weir import _paths
from weir._launch import LaunchError, command_line, environment
from weir._plugin import PluginError, build
from weir._standins import StandinError


def _run(options: argparse.Namespace) -> int:
    settings = {
        "enable": not options.shadow,
        "trace": os.path.abspath(options.trace) if options.trace else None,
        "shadow": os.path.abspath(options.shadow_trace) if options.shadow else None,
        "main_process": os.getpid(),
    }
    command = command_line(options.program)
    if settings["enable"] and os.environ.get("WEIR_DISABLE") != "1":
        build()  # once, before several processes want it
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment(settings))
    except OSError as error:
        raise LaunchError(f"{command[0]} cannot be started: {error.strerror}") from None


def _dry_run(options: argparse.Namespace) -> int:
    from weir import _dry_run

    return _dry_run.main(options)


def _build_plugin(_: argparse.Namespace) -> int:
    print(build())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m weir",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a program with Weir as PyTorch's allocator")
    run.add_argument("--trace", metavar="FILE", help="write what is allocated, for `weir replay`")
    run.add_argument(
        "--shadow",
        action="store_true",
        help="leave PyTorch's allocator in charge, and report at the end what Weir would have held",
    )
    run.add_argument("--shadow-trace", metavar="FILE", default="weir-shadow.csv",
                     help="where --shadow keeps its trace (default: %(default)s)")
    run.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM ...")
    run.set_defaults(function=_run)

    dry = commands.add_parser("dry-run", help="run a program without a GPU: does it fit?")
    dry.add_argument("--gpu-memory", required=True, metavar="24GiB", help="of each GPU")
    dry.add_argument("--gpus", type=int, default=1, metavar="N", help="how many (default: 1)")
    dry.add_argument("--json", metavar="FILE", help="write the report as JSON too")
    dry.add_argument(
        "--allocators", default="weir,native,expandable", metavar="A,...",
        help="of weir, native, expandable, in this order (default: all)",
    )
    dry.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM ...")
    dry.set_defaults(function=_dry_run)

    plugin = commands.add_parser("build-plugin", help="build the plugin for the installed PyTorch")
    plugin.set_defaults(function=_build_plugin)
    return parser


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in ("replay", "fit", "trace"):
        command = _paths.find().command
        try:
            os.execv(command, [str(command), *arguments])
        except OSError as error:
            print(f"weir: {command} cannot be started: {error.strerror}", file=sys.stderr)
            return 2
    options = _parser().parse_args(arguments)
    try:
        return options.function(options)
    except (LaunchError, PluginError, StandinError, ValueError) as error:
        print(f"weir: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
