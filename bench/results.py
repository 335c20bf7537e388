"""Results of the benchmark programs: merging repetitions, and the goals they are held against.

A run is Google Benchmark's JSON as one program printed it. The merged result has the same form: of
each case one entry, whose times and counters are the medians of its repetitions. Beside them an
entry has "ns": the time that counts, per operation in nanoseconds. That is cpu_time, which other
programs on the machine disturb least; of cases with several threads real_time.
"""

import math
import statistics

# In the order of the report. Times of CPU memory are there for scale.
ALLOCATORS = ["weir", "torch", "torch_expandable", "rmm_pool", "rmm_arena", "cub", "cuda",
              "cuda_async", "malloc", "tcmalloc", "mimalloc", "none"]
THREADED = {"threads", "threads_shared", "cross_thread_free"}
LEAST_TRACE_BYTES = 64 << 20  # below that a trace is a few granules and its ratio says nothing


def split_name(name):
    """("pair", "weir", "512") of "pair/weir/512"; the parameter may be empty."""
    group, allocator, parameter = (name.split("/", 2) + ["", ""])[:3]
    return group, allocator, parameter


def number_of(parameter):
    return int(parameter) if parameter.isdigit() else None


def median_entry(entries):
    """One entry of a case out of those of its repetitions."""
    good = [e for e in entries if not e.get("error_occurred")]
    if not good:
        return dict(entries[0])
    merged = dict(good[0])
    for key, value in good[0].items():
        if isinstance(value, float) or key == "iterations":
            merged[key] = statistics.median(e[key] for e in good if key in e)
    merged["iterations"] = int(merged["iterations"])
    merged["repetitions"] = len(good)
    merged["repetition_index"] = 0
    timed = "real_time" if split_name(merged["name"])[0] in THREADED else "cpu_time"
    merged["ns"] = merged[timed]
    merged["ns_least"] = min(e[timed] for e in good)
    merged["ns_most"] = max(e[timed] for e in good)
    return merged


def merge(runs, context):
    """The merged result of many runs, in the order in which cases and allocators were first seen."""
    entries = {}
    for run in runs:
        for entry in run["benchmarks"]:
            if entry.get("run_type", "iteration") == "iteration":
                entries.setdefault(entry["name"], []).append(entry)
    merged = dict(runs[0]["context"]) if runs else {}
    for key in ("allocator", "allocator_version", "allocator_note", "executable"):
        merged.pop(key, None)
    for run in runs:
        own = run["context"]
        merged["version." + own["allocator"]] = own["allocator_version"]
        if own.get("allocator_note"):
            merged["note." + own["allocator"]] = own["allocator_note"]
        if own.get("device"):
            merged["device"] = own["device"]
    merged.update(context)
    return {"context": merged, "benchmarks": [median_entry(e) for e in entries.values()]}


class Table:
    """The merged result by case, for goals and charts."""

    def __init__(self, result):
        self.entries = {e["name"]: e for e in result["benchmarks"]}

    def entry(self, group, allocator, parameter=""):
        name = "/".join(p for p in (group, allocator, str(parameter)) if p)
        entry = self.entries.get(name)
        return None if entry is None or entry.get("error_occurred") else entry

    def ns(self, group, allocator, parameter=""):
        entry = self.entry(group, allocator, parameter)
        return None if entry is None else entry["ns"]

    def groups(self):
        return list(dict.fromkeys(split_name(n)[0] for n in self.entries))

    def parameters(self, group):
        found = dict.fromkeys(split_name(n)[2] for n in self.entries if split_name(n)[0] == group)
        return sorted(found, key=lambda p: (number_of(p) is None, number_of(p) or 0, p))

    def allocators(self, group=None):
        found = {split_name(n)[1] for n in self.entries
                 if group is None or split_name(n)[0] == group}
        return [a for a in ALLOCATORS if a in found] + sorted(found - set(ALLOCATORS))


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def figure(value):
    """Three digits that count, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def goals(result):
    """Yields (what, goal, measured, met); met is None where something was not measured."""
    table = Table(result)
    small = [512, 4 << 10, 64 << 10, 256 << 10]
    large = [1 << 20, 8 << 20, 64 << 20]

    def times(group, parameters, allocator="weir"):
        found = [table.ns(group, allocator, p) for p in parameters]
        return None if None in found else found

    def at_most(what, values, limit, unit="ns"):
        worst = None if not values else max(values)
        shown = "not measured" if worst is None else f"{figure(worst)} {unit}".strip()
        goal = f"≤ {limit} {unit}".strip() if limit else "0"
        return what, goal, shown, None if worst is None else worst <= limit

    def at_least(what, value, limit, unit):
        shown = "not measured" if value is None else f"{figure(value)} {unit}"
        return what, f"≥ {limit} {unit}", shown, None if value is None else value >= limit

    pairs = times("pair", small)
    torch = times("pair", small, "torch")
    malloc = table.ns("pair", "malloc", 512)
    yield at_most("pair, 512 B … 256 KiB", pairs, 25)
    faster = min(t / w for t, w in zip(torch, pairs)) if pairs and torch else None
    yield at_least("the same, PyTorch ÷ Weir", faster, 9, "×")
    yield at_most("the same ÷ glibc's 512 B pair", [p / malloc for p in pairs]
                  if pairs and malloc else None, 4, "×")
    yield at_most("pair, 1, 8, 64 MiB", times("pair", large), 60)
    yield at_most("random sizes, 1,024 live", times("random", [1024]), 70)
    yield at_most("random sizes 512 KiB … 64 MiB against 1,000 free extents",
                  times("random_large", [1000]), 400)
    yield at_most("the same against 10,000",
                  times("random_large", [10000]), 600)
    yield at_most("the same against 100,000", times("random_large", [100000]), 600)
    grown = times("free_blocks", [10, 10000])
    yield at_most("random small sizes, 10,000 free blocks against 10",
                  [grown[1] / grown[0]] if grown else None, 1.5, "×")
    two = times("threads", [1, 2])
    yield at_least("2 threads, own streams, against one", two[0] / two[1] if two else None, 1.8,
                   "× throughput")
    hits = [table.entry("pair", "weir", p) for p in small + large]
    calls = None if None in hits else [h.get("driver_calls_per_op") for h in hits]
    yield at_most("a hit: driver calls", calls if calls and None not in calls else None, 0, "")
    ratios = [e["reserved_over_requested"] for n, e in table.entries.items()
              if split_name(n)[:2] == ("trace", "weir")
              and e.get("peak_requested_bytes", 0) >= LEAST_TRACE_BYTES
              and "reserved_over_requested" in e]
    yield at_most(f"peak reserved ÷ peak requested, geometric mean of {len(ratios)} traces",
                  [geometric_mean(ratios)] if ratios else None, 1.03, "")
    yield at_most("the same, worst trace", ratios or None, 1.06, "")
