"""bench.html: one page with all figures, which loads nothing; and the lines bench/run prints."""

import html as escaping
import math

import results
from report_style import STYLE

GROUPS = [
    ("pair", "One allocation and its free, of one size, again and again", "bytes"),
    ("lifo", "32 blocks allocated, then freed, the last first", "bytes"),
    ("fifo", "32 blocks allocated, then freed, the first first", "bytes"),
    ("random", "Random sizes, 512 B to 4 MiB, so many live", "live blocks"),
    ("random_large", "Random sizes, 512 KiB to 64 MiB, against so many free extents",
     "free extents"),
    ("free_blocks", "Random sizes, 512 B to 256 KiB, against so many free blocks", "free blocks"),
    ("threads", "Threads, each on a stream of its own: wall time per pair of all together",
     "threads"),
    ("threads_shared", "Threads on one stream: wall time per pair of all together", "threads"),
    ("cross_thread_free", "Blocks freed by another thread, handed over 64 at a time: wall time per "
     "pair of all together", "threads"),
    ("ping_pong", "A block of 1 MiB goes from one stream to the other and back", ""),
    ("record_use", "A block of 1 MiB, used on another stream", ""),
    ("trace", "Recorded programs, replayed: time per operation", "trace"),
]


def text(value):
    return escaping.escape(str(value))


def size(parameter):
    """"64 KiB" of "65536"."""
    value = results.number_of(parameter)
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if value is not None and value >= unit and value % unit == 0:
            return f"{value // unit} {name}"
    return parameter if value is None else f"{value} B"


def shown_parameter(group, parameter):
    if group in ("pair", "lifo", "fifo"):
        return size(parameter)
    value = results.number_of(parameter)
    return parameter if value is None else f"{value:,}"


def nanoseconds(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ratio(value):
    return f"{value:.2f} ×" if value < 10 else f"{value:,.0f} ×"


def bar_chart(table, group, parameters, allocators):
    """One block of bars per parameter, on one logarithmic scale."""
    values = {(p, a): table.ns(group, a, p) for p in parameters for a in allocators}
    measured = [v for v in values.values() if v]
    if not measured:
        return ""
    low = 10 ** math.floor(math.log10(min(measured) * 0.8))
    high = 10 ** math.ceil(math.log10(max(measured) * 1.2))
    left, right, row, gap, top = 130, 640, 15, 26, 22

    def x(value):
        share = (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))
        return left + share * (right - left)

    parts, y = [], top
    for p in parameters:
        rows = [a for a in allocators if values[p, a]]
        if not rows:
            continue
        if p:
            parts.append(f'<text class="head" x="0" y="{y + 11}">'
                         f'{text(shown_parameter(group, p))}</text>')
            y += row + 1
        for a in rows:
            value = values[p, a]
            kind = "weir" if a == "weir" else "other"
            parts.append(
                f'<text x="{left - 6}" y="{y + 11}" text-anchor="end">{text(a)}</text>'
                f'<rect class="{kind}" x="{left}" y="{y + 2}" height="{row - 4}" '
                f'width="{max(x(value) - left, 1):.1f}"><title>{text(a)}: '
                f'{nanoseconds(value)} ns</title></rect>'
                f'<text x="{x(value) + 4:.1f}" y="{y + 11}">{nanoseconds(value)}</text>')
            y += row
        y += gap - row
    grid = []
    tick = low
    while tick <= high * 1.001:
        grid.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top - 4}" '
                    f'y2="{y}"/><text x="{x(tick):.1f}" y="{top - 9}" text-anchor="middle">'
                    f'{tick:g} ns</text>')
        tick *= 10
    return (f'<svg class="chart" viewBox="0 0 720 {y}" role="img" '
            f'aria-label="nanoseconds by allocator">{"".join(grid)}{"".join(parts)}</svg>')


def cell(entry, weir):
    if entry is None:
        return "<td></td>"
    if entry.get("error_occurred"):
        why = str(entry.get("error_message", "")).removeprefix("skipped: ")
        return f'<td class="quiet" title="{text(why)}">–</td>'
    spread = f"{nanoseconds(entry['ns_least'])} to {nanoseconds(entry['ns_most'])} ns"
    times = "" if weir is None else f'<br><span class="quiet">{ratio(entry["ns"] / weir)}</span>'
    return f'<td title="{spread}">{nanoseconds(entry["ns"])}{times}</td>'


def time_table(table, group, parameters, allocators, unit):
    head = "".join(f"<th>{text(a)}</th>" for a in allocators)
    rows = []
    for p in parameters:
        weir = table.ns(group, "weir", p)
        cells = "".join(
            cell(table.entries.get("/".join(x for x in (group, a, p) if x)),
                 None if a == "weir" else weir) for a in allocators)
        rows.append(f"<tr><th>{text(shown_parameter(group, p))}</th>{cells}</tr>")
    return (f'<div class="wide"><table><thead><tr><th>{text(unit)}</th>{head}</tr></thead>'
            f'<tbody>{"".join(rows)}</tbody></table></div>')


def skipped(table, group):
    """Why cases were skipped, one line per reason."""
    reasons = {}
    for name, entry in table.entries.items():
        if results.split_name(name)[0] == group and entry.get("error_occurred"):
            why = str(entry.get("error_message", "")).removeprefix("skipped: ")
            reasons.setdefault(why, []).append(results.split_name(name)[1])
    lines = [f"{text(', '.join(dict.fromkeys(names)))}: {text(why)}"
             for why, names in reasons.items()]
    return f'<p class="quiet">Not measured (–): {"; ".join(lines)}.</p>' if lines else ""


def group_section(table, group, title, unit):
    allocators = table.allocators(group)
    parameters = table.parameters(group)
    if not parameters:
        return ""
    chart = "" if group == "trace" else bar_chart(table, group, parameters, allocators)
    return (f'<h2 id="{group}">{group}</h2><p>{text(title)}. Nanoseconds; below them the ratio to '
            f"Weir.</p>{time_table(table, group, parameters, allocators, unit)}"
            f"{skipped(table, group)}<figure>{chart}</figure>")


def memory_section(table):
    """Peak reserved ÷ peak requested of the traces."""
    kept = [(p, {a: table.entry("trace", a, p) for a in table.allocators("trace")})
            for p in table.parameters("trace")]
    kept = [(p, {a: e for a, e in row.items() if e and "reserved_over_requested" in e})
            for p, row in kept]
    kept = [(p, row) for p, row in kept
            if row and next(iter(row.values()))["peak_requested_bytes"] >=
            results.LEAST_TRACE_BYTES]
    if not kept:
        return ""
    allocators = [a for a in table.allocators("trace") if any(a in row for _, row in kept)]
    head = "".join(f"<th>{text(a)}</th>" for a in allocators)
    body = "".join(
        f"<tr><th>{text(p)}</th>" +
        "".join(f"<td>{row[a]['reserved_over_requested']:.3f}</td>" if a in row else
                '<td class="quiet">–</td>' for a in allocators) + "</tr>" for p, row in kept)
    means = "".join(
        "<td>{:.3f}</td>".format(results.geometric_mean(
            [row[a]["reserved_over_requested"] for _, row in kept if a in row]))
        for a in allocators)
    return ('<h2 id="memory">Memory of the traces</h2><p>Peak reserved ÷ peak requested bytes, from '
            "an empty allocator; 1 is perfect. Traces with a peak of 64 MiB or more; the mean is over "
            'those that an allocator ran.</p><div class="wide"><table><thead><tr><th>trace</th>'
            f"{head}</tr></thead><tbody>{body}<tr><th>geometric mean</th>{means}</tr></tbody>"
            "</table></div>")


def calls_section(table):
    """Calls of the simulated device per operation, where there were any."""
    def calls(name):
        return table.entries[name].get("driver_calls_per_op", 0)

    allocators = [a for a in table.allocators()
                  if any("driver_calls_per_op" in e for n, e in table.entries.items()
                         if results.split_name(n)[1] == a)]
    cases = dict.fromkeys((results.split_name(n)[0], results.split_name(n)[2])
                          for n in table.entries if calls(n) >= 0.001)
    if not cases:
        return ""
    rows = []
    for group, parameter in cases:
        cells = ""
        for a in allocators:
            entry = table.entry(group, a, parameter)
            cells += ('<td class="quiet">–</td>' if entry is None else
                      f'<td>{entry.get("driver_calls_per_op", 0):.3g}</td>')
        rows.append(f"<tr><th>{text(group)} {text(shown_parameter(group, parameter))}</th>{cells}"
                    "</tr>")
    head = "".join(f"<th>{text(a)}</th>" for a in allocators)
    return ('<h2 id="calls">Driver calls</h2><p>Calls of the simulated device per operation, of '
            "cases in which any allocator made one in a thousand. RMM's and CUB's events are not "
            'counted: they stop short of the device.</p><div class="wide"><table><thead><tr>'
            f'<th>case</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>')


def goals_section(result):
    rows = []
    for what, goal, measured, met in results.goals(result):
        verdict = {True: ("met", "met"), False: ("not met", "bad"), None: ("–", "quiet")}[met]
        rows.append(f'<tr><th>{text(what)}</th><td>{text(goal)}</td><td>{text(measured)}</td>'
                    f'<td class="{verdict[1]}">{verdict[0]}</td></tr>')
    return ('<h2 id="goals">Goals</h2><div class="wide"><table><thead><tr><th>what</th><th>goal</th>'
            f'<th>measured</th><th></th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>')


def versions_section(context, allocators):
    rows = "".join(
        f'<tr><th>{text(a)}</th><td class="text">{text(context.get("version." + a, ""))}</td>'
        f'<td class="text">{text(context.get("note." + a, ""))}</td></tr>' for a in allocators)
    rows += "".join(
        f'<tr><th>{text(key.removeprefix("left_out."))}</th><td></td>'
        f'<td class="text">left out: {text(why)}</td></tr>'
        for key, why in context.items() if key.startswith("left_out."))
    return ('<h2 id="versions">Allocators</h2><div class="wide"><table><thead><tr><th>allocator</th>'
            '<th class="text">version</th><th class="text">note</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>")


def html(result):
    context = result["context"]
    table = results.Table(result)
    where = "; ".join(str(context[k]) for k in ("cpu", "machine", "device") if k in context)
    about = ("Times are medians of interleaved repetitions, one process per allocator: CPU time of "
             "the calling thread, with several threads wall time. Hold the pointer over a figure for "
             "the least and the most.")
    if "simulated" in str(context.get("device", "")):
        about += (" On the simulated device a hit costs what it costs the CPU anywhere; calls of the "
                  "driver cost what the simulation takes, and RMM's and CUB's events cost nothing.")
    sections = "".join(group_section(table, *group) for group in GROUPS)
    return (f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Weir benchmark</title>'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
            f"<h1>Weir beside other allocators</h1><p>{text(where)}</p>"
            f'<p class="quiet">Weir {text(context.get("version.weir", ""))}, git '
            f'{text(context.get("git_version", ""))}; {text(context.get("date", ""))}; '
            f'{text(context.get("mode", ""))} run.</p><p>{text(about)}</p>'
            f"{goals_section(result)}{versions_section(context, table.allocators())}{sections}"
            f"{memory_section(table)}{calls_section(table)}</body></html>\n")


def summary(result):
    """What bench/run prints: the goals, one line each."""
    verdicts = {True: "met", False: "NOT MET", None: "-"}
    return "\n".join(f"{verdicts[met]:8} {what}: {measured} (goal {goal})"
                     for what, goal, measured, met in results.goals(result))
