#!/usr/bin/env python3
"""The README's memory figures: replays the traces and fails if Weir now does worse than it says there.

    readme_figures_test.py WEIR_COMMAND
"""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
LEAST_BYTES = 64 << 20  # below that a trace is a few granules and its ratio says nothing


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def replay(weir):
    traces = [t for t in sorted((ROOT / "bench/traces").glob("*.weirtrace"))
              if not t.name.startswith("minimalloc__")]
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder, "replay.json")
        subprocess.run([weir, "replay", *traces, "--memory", "512GiB", "--json", result],
                       check=True, stdout=subprocess.DEVNULL)
        runs = json.loads(result.read_text(encoding="utf-8"))["runs"]
    return {r["trace"]: r["ratio"] for r in runs if r["peak_requested_bytes"] >= LEAST_BYTES}


def fits_in(weir, mode):
    """Smallest device ÷ peak requested, of each trace that counts."""
    traces = [t for t in sorted((ROOT / "bench/traces").glob("*.weirtrace"))
              if not t.name.startswith("minimalloc__")]
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder, "fit.json")
        subprocess.run([weir, "fit", *traces, "--options", f"mode:{mode}", "--jobs", "2", "--json", result],
                       check=True, stdout=subprocess.DEVNULL)
        runs = json.loads(result.read_text(encoding="utf-8"))["runs"]
    return [r["fits_in_bytes"] / r["peak_requested_bytes"] for r in runs
            if r["peak_requested_bytes"] >= LEAST_BYTES]


def main():
    ratios = replay(sys.argv[1])
    peers = json.loads((ROOT / "bench/traces/baselines.json").read_text(encoding="utf-8"))["traces"]
    measured = (geometric_mean([ratios[name] for name in peers]),
                geometric_mean(list(ratios.values())), max(ratios.values()))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    stated = tuple(map(float, re.search(r"\| Weir \| (\S+) \| (\S+) \| (\S+) \|", readme).groups()))
    print("measured", *(f"{m:.4f}" for m in measured), "stated", *stated, "over", len(ratios))
    wrong = [m > s for m, s in zip(measured, stated)]
    for name, key in (("expandable segments", "expandable_ratio"), ("native", "native_ratio")):
        figure = re.search(rf"\| PyTorch, {name} \| (\S+) \|", readme).group(1)
        wrong.append(figure != f"{geometric_mean([p[key] for p in peers.values()]):.3f}")
    wrong.append(f"({len(ratios)})" not in readme)
    for mode in ("tight", "default"):
        fits = fits_in(sys.argv[1], mode)
        figures = re.search(rf"\| Weir, `mode:{mode}` \| (\S+) \| (\S+) \|", readme).groups()
        print(f"fits in, {mode}: measured {geometric_mean(fits):.4f} {max(fits):.4f} stated", *figures)
        wrong.append(len(fits) != len(ratios))
        wrong.append(round(geometric_mean(fits), 3) > float(figures[0]))
        wrong.append(round(max(fits), 3) > float(figures[1]))
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
