#!/usr/bin/env python3
"""Merging of repetitions, the goals, and the page."""

import html.parser
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import report  # noqa: E402
import results  # noqa: E402


def entry(name, ns, **more):
    return {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 1,
            "repetition_index": 0, "threads": 1, "iterations": 100, "real_time": 2.0 * ns,
            "cpu_time": float(ns), "time_unit": "ns", **more}


def skipped(name, why):
    return entry(name, 0.0, error_occurred=True, error_message=f"skipped: {why}")


def run(allocator, *entries, note="", version="1.0"):
    context = {"date": "d", "num_cpus": 2, "executable": "x", "allocator": allocator,
               "allocator_version": version}
    if note:
        context["allocator_note"] = note
    return {"context": context, "benchmarks": list(entries)}


def merged(*runs, **context):
    return results.merge(runs, context)


def goal(result, start):
    return next(g for g in results.goals(result) if g[0].startswith(start))


class Merge(unittest.TestCase):
    def test_times_and_counters_are_medians_of_the_repetitions(self):
        result = merged(*(run("weir", entry("pair/weir/512", ns, driver_calls_per_op=ns / 10))
                          for ns in (30.0, 10.0, 20.0)))
        (only,) = result["benchmarks"]
        self.assertEqual(only["cpu_time"], 20)
        self.assertEqual(only["real_time"], 40)
        self.assertEqual(only["driver_calls_per_op"], 2)
        self.assertEqual(only["repetitions"], 3)
        self.assertEqual((only["ns_least"], only["ns_most"]), (10, 30))

    def test_cpu_time_counts_and_with_threads_real_time(self):
        result = merged(run("weir", entry("pair/weir/512", 7.0), entry("threads/weir/2", 7.0)))
        table = results.Table(result)
        self.assertEqual(table.ns("pair", "weir", 512), 7)
        self.assertEqual(table.ns("threads", "weir", 2), 14)

    def test_a_failed_repetition_does_not_count_unless_all_failed(self):
        bad = entry("pair/weir/512", 0.0, error_occurred=True, error_message="no memory")
        one_good = merged(run("weir", bad), run("weir", entry("pair/weir/512", 9.0)))
        self.assertEqual(results.Table(one_good).ns("pair", "weir", 512), 9)
        none_good = merged(run("weir", bad), run("weir", bad))
        self.assertIsNone(results.Table(none_good).ns("pair", "weir", 512))
        self.assertEqual(none_good["benchmarks"][0]["error_message"], "no memory")

    def test_the_context_names_every_allocator_and_the_machine(self):
        result = merged(run("weir", entry("pair/weir/512", 9.0), version="0.1.0"),
                        run("cub", entry("pair/cub/512", 9.0), version="3.0", note="a note"),
                        cpu="a CPU")
        context = result["context"]
        self.assertEqual(context["version.weir"], "0.1.0")
        self.assertEqual(context["version.cub"], "3.0")
        self.assertEqual(context["note.cub"], "a note")
        self.assertEqual(context["cpu"], "a CPU")
        self.assertNotIn("allocator", context)

    def test_parameters_are_in_the_order_of_their_numbers(self):
        result = merged(run("weir", *(entry(f"pair/weir/{n}", 1.0) for n in (4096, 65536, 512))))
        self.assertEqual(results.Table(result).parameters("pair"), ["512", "4096", "65536"])


class Goals(unittest.TestCase):
    def test_what_was_not_measured_is_neither_met_nor_missed(self):
        result = merged(run("weir", entry("pair/weir/512", 9.0)))
        self.assertEqual({met for *_, met in results.goals(result)}, {None})

    def test_the_worst_size_decides(self):
        sizes = (512, 4096, 65536, 262144)
        fast = merged(run("weir", *(entry(f"pair/weir/{n}", 25.0) for n in sizes)))
        self.assertIs(goal(fast, "pair, 512 B")[3], True)
        slow = merged(run("weir", *(entry(f"pair/weir/{n}", 25.0 + (n == 4096)) for n in sizes)))
        self.assertIs(goal(slow, "pair, 512 B")[3], False)

    def test_ratios_compare_the_same_size_of_the_same_run(self):
        sizes = (512, 4096, 65536, 262144)
        both = [run("weir", *(entry(f"pair/weir/{n}", 20.0) for n in sizes)),
                run("torch", *(entry(f"pair/torch/{n}", 180.0) for n in sizes)),
                run("malloc", entry("pair/malloc/512", 4.9))]
        result = merged(*both)
        self.assertIs(goal(result, "the same, PyTorch")[3], True)
        self.assertIs(goal(result, "the same ÷ glibc")[3], False)

    def test_two_threads_are_held_against_one_by_wall_time(self):
        result = merged(run("weir", entry("threads/weir/1", 18.0), entry("threads/weir/2", 10.0)))
        self.assertIs(goal(result, "2 threads")[3], True)

    def test_a_driver_call_on_a_hit_misses_the_goal(self):
        sizes = (512, 4096, 65536, 262144, 1 << 20, 8 << 20, 64 << 20)
        def with_calls(calls):
            return merged(run("weir", *(entry(f"pair/weir/{n}", 9.0, driver_calls_per_op=calls)
                                        for n in sizes)))
        self.assertIs(goal(with_calls(0.0), "a hit")[3], True)
        self.assertIs(goal(with_calls(0.001), "a hit")[3], False)

    def test_traces_of_a_few_granules_have_no_ratio(self):
        result = merged(run(
            "weir",
            entry("trace/weir/big", 9.0, peak_requested_bytes=float(1 << 30),
                  reserved_over_requested=1.02),
            entry("trace/weir/tiny", 9.0, peak_requested_bytes=1000.0,
                  reserved_over_requested=2000.0)))
        self.assertIs(goal(result, "the same, worst trace")[3], True)


class Page(html.parser.HTMLParser):
    """What the page loads, and whether its tags are closed."""

    VOID = {"meta", "br"}

    def __init__(self, page):
        super().__init__()
        self.open, self.loads, self.text = [], [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "data", "action") and not value.startswith("#"):
                self.loads.append(value)
        if tag in ("link", "script", "iframe", "img"):
            self.loads.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        self.text += data


class Report(unittest.TestCase):
    def setUp(self):
        self.result = merged(
            run("weir", *(entry(f"pair/weir/{n}", 10.0) for n in (512, 1 << 20)),
                entry("trace/weir/big", 9.0, peak_requested_bytes=float(1 << 30),
                      reserved_over_requested=1.02), version="0.1.0"),
            run("cub", entry("pair/cub/512", 25.0), skipped("pair/cub/1048576", "too <long>"),
                note="a <b>note</b>"),
            cpu="a & b", machine="Linux", device="simulated device: no GPU time",
            git_version="abc", **{"left_out.torch": "not built"})

    def test_it_loads_nothing_and_closes_its_tags(self):
        page = report.html(self.result)
        parsed = Page(page)
        self.assertEqual(parsed.loads, [])
        self.assertEqual(parsed.open, [])
        self.assertNotRegex(page, r"url\(|@import|http")
        self.assertIn("prefers-color-scheme: dark", page)

    def test_it_names_the_machine_the_versions_and_what_is_missing(self):
        parsed = Page(report.html(self.result))
        for wanted in ("a & b", "Linux", "no GPU time", "0.1.0", "abc", "a <b>note</b>",
                       "left out: not built", "cub: too <long>"):
            self.assertIn(wanted, parsed.text)

    def test_it_shows_times_and_their_ratio_to_weir(self):
        parsed = Page(report.html(self.result))
        self.assertIn("25.0", parsed.text)
        self.assertIn("2.50 ×", parsed.text)
        self.assertIn("1.020", parsed.text)

    def test_driver_calls_are_shown_where_there_were_any(self):
        result = merged(run("weir", entry("pair/weir/512", 9.0, driver_calls_per_op=0.0)),
                        run("cuda", entry("pair/cuda/512", 9.0, driver_calls_per_op=2.0)))
        self.assertIn("Driver calls", Page(report.html(result)).text)
        self.assertNotIn("Driver calls", Page(report.html(self.result)).text)

    def test_a_result_without_weir_has_a_page_too(self):
        page = report.html(merged(run("cub", entry("pair/cub/512", 25.0)), cpu="c"))
        self.assertEqual(Page(page).open, [])

    def test_the_summary_has_a_line_for_each_goal(self):
        lines = report.summary(self.result).splitlines()
        self.assertEqual(len(lines), len(list(results.goals(self.result))))


if __name__ == "__main__":
    unittest.main()
