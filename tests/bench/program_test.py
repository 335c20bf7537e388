#!/usr/bin/env python3
"""A benchmark program lists every case under its name, and runs a few of each kind to good JSON.

    program_test.py PROGRAM ALLOCATOR

Exits 77 (skipped) where the allocator's library is not installed.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

CASES = (
    [f"pair/{{}}/{n}" for n in (512, 4096, 65536, 262144, 1 << 20, 8 << 20, 64 << 20)] +
    ["lifo/{}/512", "fifo/{}/512", "random/{}/1024"] +
    [f"random_large/{{}}/{n}" for n in (1000, 10000, 100000)] +
    [f"free_blocks/{{}}/{n}" for n in (10, 100, 1000, 10000, 100000)] +
    [f"{group}/{{}}/{n}" for group in ("threads", "threads_shared") for n in (1, 2, 4, 8)] +
    ["cross_thread_free/{}/2", "ping_pong/{}", "record_use/{}", "trace/{}/resnet50_offline"])
RUN = r"^(pair/.*/512|lifo/.*/512|fifo/.*/512|random/.*|free_blocks/.*/100|threads(_shared)?/.*/2" \
      r"|cross_thread_free/.*/2|ping_pong/.*|record_use/.*|trace/.*/resnet50_offline)(/real_time)?$"
CPU_MEMORY = {"malloc", "tcmalloc", "mimalloc", "none"}
RECORD_USE = {"weir", "torch", "torch_expandable"}


def run(program, *flags, asked=""):
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    ran = subprocess.run([program, *flags], check=False, capture_output=True, text=True,
                         env=environment, input=asked)
    if ran.returncode == 3 and "Debian's package" in ran.stderr:
        print(ran.stderr)
        sys.exit(77)
    assert ran.returncode == 0, f"status {ran.returncode}: {ran.stderr}"
    return ran.stdout


def check_names(program, allocator):
    listed = {line.removesuffix("/real_time") for line in run(program, "--benchmark_list_tests").split()}
    missing = [name for name in (case.format(allocator) for case in CASES) if name not in listed]
    assert not missing, f"no case {missing}"
    strange = [name for name in listed if name.split("/")[1] != allocator]
    assert not strange, f"names of another allocator: {strange}"


def check_run(program, allocator):
    result = json.loads(run(program, "--json", "--benchmark_min_time=0.001",
                            f"--benchmark_filter={RUN}"))
    assert result["context"]["allocator"] == allocator
    assert allocator == "none" or result["context"]["allocator_version"], "no version"
    entries = {entry["name"]: entry for entry in result["benchmarks"]}
    expected = {case.format(allocator) for case in CASES if re.match(RUN, case.format(allocator))}
    assert expected <= set(entries), f"not run: {expected - set(entries)}"
    for name, entry in entries.items():
        group = name.split("/")[0]
        skipped = group == "record_use" and allocator not in RECORD_USE or \
            allocator in CPU_MEMORY and group in ("threads_shared", "ping_pong", "record_use")
        error = entry.get("error_message", "")
        assert error.startswith("skipped: ") == skipped, f"{name}: {error or 'not skipped'}"
        if skipped:
            continue
        assert not error, f"{name}: {error}"
        assert entry["cpu_time"] > 0 and entry["real_time"] > 0 and entry["time_unit"] == "ns", entry
    trace = entries[f"trace/{allocator}/resnet50_offline"]
    assert trace["peak_requested_bytes"] > 1 << 30
    if allocator == "weir":
        assert entries["pair/weir/512"]["driver_calls_per_op"] == 0, "a hit calls the driver"
        assert 1 <= trace["reserved_over_requested"] < 2, trace


def check_replay(program, allocator):
    """Devices that `weir fit` asks for: one that is too small, and one that is not."""
    trace = pathlib.Path(__file__).resolve().parents[2] / "bench/traces/resnet50_offline.weirtrace"
    answers = run(program, f"--replay={trace}", asked=f"{1 << 30} 2\n{80 << 30} 2\n")
    small, large = (json.loads(line) for line in answers.splitlines())
    if allocator in CPU_MEMORY:
        assert "allocates no device memory" in small["error"], small
        return
    assert [r["completed"] for r in small["runs"]] == [False], small
    assert small["runs"][0]["failed_event"] >= 0 and small["runs"][0]["error"], small
    assert [(r["pass"], r["completed"]) for r in large["runs"]] == [(1, True), (2, True)], large
    assert large["runs"][0]["peak_reserved_bytes"] > 1 << 30, large
    assert all("driver_calls" in r and r["driver_time_us"] >= 0 for r in large["runs"]), large
    scaled = run(program, f"--replay={trace}", "--scale=60", asked=f"{80 << 30} 1\n")
    assert json.loads(scaled)["runs"][0]["completed"] is False, scaled
    missing = run(program, "--replay=/nonexistent", asked="1 1\n")
    assert "/nonexistent" in json.loads(missing)["error"], missing


def main():
    check_names(*sys.argv[1:3])
    check_run(*sys.argv[1:3])
    check_replay(*sys.argv[1:3])


if __name__ == "__main__":
    main()
