"""The Python package: weir run, its trace and shadow, weir dry-run, the stock pluggable interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from weir import _plugin, _sizes

MIB = 1 << 20

PROGRAM = """
import sys, torch
torch.backends.cudnn.enabled = False
side = torch.cuda.Stream()
kept = []
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 8):
    x = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(side):
        y = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    x.record_stream(side)
    kept.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
    del x, y
stats = torch.cuda.memory_stats()
print("backend", torch.cuda.get_allocator_backend())
print("allocations", stats["allocation.all.allocated"])
"""


class PackageTestCase(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "program.py"
        self.program.write_text(PROGRAM)

    def weir(
        self, *arguments: str, status: int | None = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "weir", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env={**os.environ, **environment},
        )
        if status is not None:
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done


class RunTest(PackageTestCase):
    def test_a_program_that_does_not_know_of_weir_runs_with_it(self) -> None:
        done = self.weir("run", str(self.program))
        self.assertIn("backend weir", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_the_program_gets_its_own_arguments_and_status(self) -> None:
        self.program.write_text("import sys; print(sys.argv[1:]); sys.exit(7)")
        done = self.weir("run", str(self.program), "--shadow", "x", status=7)
        self.assertEqual(done.stdout.strip(), "['--shadow', 'x']")

    def test_weir_disable_leaves_pytorch_alone(self) -> None:
        done = self.weir("run", str(self.program), WEIR_DISABLE="1")
        self.assertIn("backend native", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_processes_that_the_program_starts_follow(self) -> None:
        self.program.write_text(
            "import torch, torch.multiprocessing as mp\n"
            "def child(rank):\n"
            "    torch.empty(1, device='cuda')\n"
            "    print('child', rank, torch.cuda.get_allocator_backend(), flush=True)\n"
            "if __name__ == '__main__':\n"
            "    mp.spawn(child, nprocs=2)\n"
        )
        done = self.weir("run", str(self.program))
        self.assertIn("child 0 weir", done.stdout)
        self.assertIn("child 1 weir", done.stdout)

    def test_processes_follow_weir_enable_too(self) -> None:
        self.program.write_text(
            "import torch, torch.multiprocessing as mp\n"
            "from child import run\n"
            "if __name__ == '__main__':\n"
            "    import weir; weir.enable(strict=True)\n"
            "    mp.spawn(run, nprocs=1)\n"
        )
        (self.folder / "child.py").write_text(
            "import torch\n"
            "def run(rank):\n"
            "    torch.empty(1, device='cuda'); print(torch.cuda.get_allocator_backend())\n"
        )
        done = subprocess.run(
            [sys.executable, str(self.program)], capture_output=True, text=True, check=True
        )
        self.assertEqual(done.stdout.split(), ["weir"])

    def test_a_plugin_that_cannot_be_built_is_one_warning_and_pytorch_goes_on(self) -> None:
        broken = {"WEIR_CACHE_DIR": str(self.folder / "empty"), "CXX": "false"}
        self.program.write_text("import weir; weir.enable()\n" + PROGRAM)
        done = subprocess.run(
            [sys.executable, str(self.program)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **broken},
        )
        self.assertIn("backend native", done.stdout)
        self.assertEqual(done.stderr.count("RuntimeWarning: Weir is not in use"), 1, done.stderr)
        done = self.weir("run", str(self.program), status=2, **broken)
        self.assertIn("could not be built", done.stderr)

    def test_pytorch_that_is_too_old_or_too_new_is_refused_in_one_line(self) -> None:
        for version in ("2.10.3", "2.16.0", "3.0", "nightly"):
            with self.assertRaises(_plugin.PluginError) as refused:
                _plugin.check_version(version)
            self.assertIn(version, str(refused.exception))
            self.assertNotIn("\n", str(refused.exception))
        for version in ("2.11.0+cu130", "2.15.1"):
            _plugin.check_version(version)

    def test_no_program_is_an_error_that_says_what_to_name(self) -> None:
        self.assertIn("name a program", self.weir("run", status=2).stderr)
        self.assertIn("no-such-command", self.weir("run", "no-such-command", status=2).stderr)


class TraceTest(PackageTestCase):
    def replay(self, trace: Path) -> dict[str, int]:
        report = self.folder / "replay.json"
        self.weir("replay", str(trace), "--memory", "8GiB", "--json", str(report), WEIR_CONF="")
        return json.loads(report.read_text())["runs"][0]

    def test_a_trace_has_what_the_program_allocated_and_replays(self) -> None:
        for disable in ("0", "1"):
            with self.subTest(WEIR_DISABLE=disable):
                trace = self.folder / "mine.csv"
                done = self.weir("run", "--trace", str(trace), str(self.program),
                                 WEIR_DISABLE=disable)
                run = self.replay(trace)
                self.assertTrue(run["completed"])
                self.assertIn(f"allocations {run['allocations']}", done.stdout)
                self.assertGreaterEqual(run["uses"], 8)

    def test_a_shadow_run_leaves_pytorch_in_charge_and_says_what_weir_would_have_held(self) -> None:
        done = self.weir("run", "--shadow", str(self.program))
        self.assertIn("backend native", done.stdout)
        for text in ("peak requested", "PyTorch's own reserved", "Weir would have"):
            self.assertIn(text, done.stderr)

    def test_a_trace_that_cannot_be_written_is_an_error(self) -> None:
        done = self.weir("run", "--trace", "/no/such/folder/x.csv", str(self.program), status=None)
        self.assertIn("cannot be written to /no/such/folder/x.csv", done.stderr)


class DryRunTest(PackageTestCase):
    def dry_run(self, memory: str, status: int) -> tuple[str, dict[str, dict]]:
        report = self.folder / "dry.json"
        done = self.weir("dry-run", "--gpu-memory", memory, "--json", str(report),
                         str(self.program), "12", status=status)
        parsed = json.loads(report.read_text())
        self.assertEqual(parsed["schema"], "weir-dry-run/1")
        runs = {}
        for run in parsed["runs"]:
            runs.setdefault(run["allocator"], run)
        return done.stdout, runs

    def test_a_program_that_fits_is_said_to_fit_with_its_peak_and_who_held_it(self) -> None:
        text, runs = self.dry_run("1GiB", status=0)
        self.assertEqual(set(runs), {"weir", "native", "expandable"})
        for run in runs.values():
            self.assertTrue(run["completed"])
            (device,) = run["devices"]
            self.assertGreaterEqual(device["peak_requested_bytes"], 12 * MIB)
            holder = device["holders_at_peak"][0]
            self.assertGreaterEqual(holder["bytes"], 10 * MIB)
            self.assertIn("program.py", " ".join(holder["stack"]))
        for text_of_limits in ("compute nothing", "cuDNN is switched off", "Triton"):
            self.assertIn(text_of_limits, text)

    def test_a_program_that_does_not_fit_is_told_why_and_what_it_needs(self) -> None:
        text, runs = self.dry_run("16MiB", status=1)
        self.assertTrue(runs["weir"]["out_of_memory"])
        self.assertIn("Out of memory no. 1", runs["weir"]["devices"][0]["oom_report"])
        self.assertIn("completes on a larger GPU", text)
        self.assertIn("Why it did not fit", text)

    def test_a_program_that_fails_by_itself_is_not_called_too_large(self) -> None:
        self.program.write_text("import torch; torch.empty(1, device='cuda'); raise KeyError('mine')")
        done = self.weir("dry-run", "--gpu-memory", "1GiB", str(self.program), status=2)
        self.assertIn("not for want of memory", done.stderr)
        self.assertIn("KeyError", done.stderr)

    def test_wrong_sizes_and_counts_are_refused(self) -> None:
        for arguments in (["--gpu-memory", "lots"], ["--gpu-memory", "1GiB", "--gpus", "17"],
                          ["--gpu-memory", "1GiB", "--allocators", "mine"]):
            with self.subTest(arguments=arguments):
                done = self.weir("dry-run", *arguments, str(self.program), status=2)
                self.assertEqual(done.stderr.count("weir: "), 1, done.stderr)

    def test_sizes_are_read_as_people_write_them(self) -> None:
        self.assertEqual(_sizes.parse("24GiB"), 24 << 30)
        self.assertEqual(_sizes.parse("1.5 MB"), 1_500_000)
        for wrong in ("", "GiB", "-1GiB", "1GiBB", "1XB"):
            self.assertRaises(ValueError, _sizes.parse, wrong)


class PluggableTest(PackageTestCase):
    def run_python(self, text: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "import torch, weir._pluggable\n"
             "torch.cuda.memory.change_current_allocator(weir._pluggable.allocator())\n"
             "import weir\n" + text],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_memory_streams_and_graphs_work_through_the_stock_interface(self) -> None:
        out = self.run_python(
            "x = torch.empty(1 << 20, device='cuda')\n"
            "print(weir.stats()['allocated_bytes'] >= 4 << 20)\n"
            "s = torch.cuda.Stream(); x.record_stream(s); del x\n"
            "print(weir.stats()['deferred_frees'])\n"
            "g = torch.cuda.CUDAGraph(); y = torch.ones(8, device='cuda')\n"
            "with torch.cuda.graph(g): z = y + 1\n"
            "g.replay(); torch.cuda.synchronize(); g.reset(); del y, z\n"
            "torch.cuda.empty_cache()\n"
            "print(weir.stats()['allocated_bytes'] < 1 << 20)\n"
        )
        self.assertEqual(out.split(), ["True", "1", "True"])

    def test_a_request_that_fails_raises_instead_of_giving_null(self) -> None:
        out = self.run_python(
            "try:\n"
            "    torch.empty(1 << 45, device='cuda')\n"
            "except RuntimeError as error:\n"
            "    print('CUDA out of memory. Weir:' in str(error))\n"
        )
        self.assertEqual(out.split(), ["True"])

    def test_limits_and_base_addresses_reach_weir(self) -> None:
        out = self.run_python(
            "torch.empty(1, device='cuda')\n"
            "torch.cuda.set_per_process_memory_fraction(0.5)\n"
            "print(weir.stats()['memory_limit'] == torch.cuda.get_device_properties(0).total_memory // 2)\n"
        )
        self.assertEqual(out.split(), ["True"])


if __name__ == "__main__":
    unittest.main()
