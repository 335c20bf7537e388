#!/usr/bin/env python3
"""bench/run with programs that only say what they were asked: order, what is left out, output."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench/run"

# A program that lists four cases, notes each measurement, and takes 10 ns, 20 ns, ... for a pair.
PROGRAM = '''#!{python}
import json, pathlib, re, sys
name = "{name}"
cases = [f"pair/{{name}}/512", f"threads/{{name}}/2/real_time", f"trace/{{name}}/iopddl_Y_1",
         f"trace/{{name}}/rlhf.1"]
if "--benchmark_list_tests" in sys.argv:
    print("\\n".join(cases))
    sys.exit(0)
log = pathlib.Path("{log}")
chosen = next(a for a in sys.argv if a.startswith("--benchmark_filter=")).split("=", 1)[1]
ran = [c for c in cases if re.search(chosen, c)]
with log.open("a") as out:
    out.write(name + " " + " ".join(ran) + "\\n")
time = 10.0 * len(log.read_text().splitlines())
print(json.dumps({{"context": {{"allocator": name, "allocator_version": "1"}}, "benchmarks": [
    {{"name": c.removesuffix("/real_time"), "run_type": "iteration", "iterations": 5,
      "real_time": time, "cpu_time": time, "time_unit": "ns"}} for c in ran]}}))
'''


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.build = pathlib.Path(self.folder.name)
        (self.build / "bin").mkdir()
        self.log = self.build / "log"

    def program(self, name, text=None):
        path = self.build / "bin" / f"weir_bench_{name}"
        path.write_text(text or PROGRAM.format(python=sys.executable, name=name, log=self.log),
                        encoding="utf-8")
        path.chmod(0o755)

    def run_bench(self, *flags):
        return subprocess.run([sys.executable, RUN, "--no-build", "--build", self.build, *flags],
                              check=False, capture_output=True, text=True)

    def result(self):
        return json.loads((self.build / "bench/bench.json").read_text(encoding="utf-8"))

    def test_repetitions_of_all_allocators_are_interleaved(self):
        self.program("weir")
        self.program("malloc")
        ran = self.run_bench("--cases", "pair", "--repetitions", "3")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        asked = [line.split()[0] for line in self.log.read_text().splitlines()]
        self.assertEqual(asked, ["weir", "malloc"] * 3)
        times = {e["name"]: e["ns"] for e in self.result()["benchmarks"]}
        self.assertEqual(times, {"pair/weir/512": 30, "pair/malloc/512": 40})
        self.assertIn("<h1>", (self.build / "bench/bench.html").read_text(encoding="utf-8"))

    def test_a_trace_has_a_process_to_itself(self):
        self.program("weir")
        self.assertEqual(self.run_bench("--repetitions", "1").returncode, 0)
        asked = [line.split()[1:] for line in self.log.read_text().splitlines()]
        self.assertIn(["trace/weir/iopddl_Y_1"], asked)
        self.assertIn(["trace/weir/rlhf.1"], asked)

    def test_quick_leaves_out_what_takes_long(self):
        self.program("weir")
        self.assertEqual(self.run_bench("--quick", "--repetitions", "1").returncode, 0)
        names = [e["name"] for e in self.result()["benchmarks"]]
        self.assertEqual(names, ["pair/weir/512", "threads/weir/2"])

    def test_an_allocator_that_cannot_work_is_left_out_with_its_reason(self):
        self.program("weir")
        self.program("cub", "#!/bin/sh\necho 'cub: no device here' >&2\nexit 3\n")
        self.program("malloc", "#!/bin/sh\nexit 9\n")
        ran = self.run_bench("--cases", "pair", "--repetitions", "2")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        context = self.result()["context"]
        self.assertEqual(context["left_out.cub"], "no device here")
        self.assertIn("status 9", context["left_out.malloc"])
        self.assertEqual(context["left_out.torch"], "not built")
        self.assertEqual(len(self.result()["benchmarks"]), 1)

    def test_nothing_measured_is_a_failure(self):
        ran = self.run_bench("--cases", "pair")
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("nothing was measured", ran.stderr)

    def test_unknown_names_are_refused(self):
        for flags in (["--allocators", "jemalloc"], ["--cases", "pears"], ["--repetitions", "0"]):
            self.assertEqual(self.run_bench(*flags).returncode, 2, flags)

    def test_the_device_is_handed_on(self):
        self.program("weir", "#!/bin/sh\necho \"$@\" >&2\nexit 3\n")
        ran = self.run_bench("--allocators", "weir", "--device", "2")
        self.assertIn("--device=2", ran.stderr)
        self.assertIn("--device=sim", self.run_bench("--allocators", "weir").stderr)


if __name__ == "__main__":
    unittest.main()
