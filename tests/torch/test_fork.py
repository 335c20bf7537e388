"""Forked children: what they inherit they may drop, nothing of it hangs, and they cannot use the device."""

from __future__ import annotations

import os
import signal
import threading
import time

import rig  # before torch
import torch

from rig import MIB, TorchTestCase

FORKS = 1000
SECONDS_PER_CHILD = 20


class TestFork(TorchTestCase):
    def fork(self, work) -> int:
        """Runs `work` in a forked child; its exit status, or 99 if it hung."""
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS_PER_CHILD)  # ends a child that hangs
            try:
                status = work()
            except BaseException:  # noqa: BLE001: nothing may return into the test
                status = 98
            os._exit(status)
        _, status = os.waitpid(child, 0)
        return 99 if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)

    def test_a_child_may_free_what_it_inherited_and_is_refused_the_device(self) -> None:
        inherited = [torch.empty(MIB, device="cuda"), torch.ones(4).pin_memory()]
        used = torch.cuda.memory_allocated()

        def work() -> int:
            inherited.clear()
            try:
                torch.empty(1, device="cuda")
            except RuntimeError as error:
                return 0 if "Cannot re-initialize CUDA in forked subprocess" in str(error) else 1
            return 2

        self.assertEqual(self.fork(work), 0)
        self.assertEqual(torch.cuda.memory_allocated(), used)
        inherited[0][:4].copy_(inherited[1])
        self.assertEqual(inherited[0][:4].tolist(), [1, 1, 1, 1])

    def test_a_child_may_free_what_it_inherited_while_history_is_recorded(self) -> None:
        torch.cuda.memory._record_memory_history()
        self.addCleanup(torch.cuda.memory._record_memory_history, None)
        inherited = [torch.empty(MIB, device="cuda")]
        self.assertEqual(self.fork(lambda: inherited.clear() or 0), 0)
        actions = [event["action"] for event in torch.cuda.memory._snapshot()["device_traces"][0]]
        self.assertNotIn("free_requested", actions)

    def test_no_lock_that_a_child_inherits_hangs(self) -> None:
        stop = threading.Event()

        def allocate() -> None:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                while not stop.is_set():
                    kept = [torch.empty(n * 3000, device="cuda") for n in range(1, 30)]
                    torch.empty(30 * MIB, device="cuda")
                    torch.cuda.empty_cache()
                    del kept

        threads = [threading.Thread(target=allocate) for _ in range(3)]
        for thread in threads:
            thread.start()
        inherited = torch.empty(1000, device="cuda")

        def work() -> int:
            nonlocal inherited
            del inherited
            try:
                torch.empty(1, device="cuda")
            except RuntimeError:
                return 0
            return 2

        begin = time.monotonic()
        try:
            statuses = [self.fork(work) for _ in range(FORKS)]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(set(statuses), {0}, f"after {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    rig.main()
