"""PyTorch on the simulated GPU from end to end: what the other tests stand on. Nothing here depends
on the values that kernels would compute, for they compute nothing."""

from __future__ import annotations

import multiprocessing
import os
import unittest
from typing import Any

import rig  # before torch
import torch
import torch.multiprocessing
from torch import nn
from weir._standins import switch_off_cudnn

switch_off_cudnn()


def change(received: Any, sent: Any, done: Any) -> None:
    """Another process: doubles what it gets on the host, and sends memory of its own."""
    tensor = received.get()
    tensor.copy_(tensor.cpu() * 2)
    torch.cuda.synchronize()
    del tensor
    sent.put(torch.arange(1 << 18).to("cuda"))
    done.wait()


class Convolutions(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                         nn.Linear(8 * 16 * 16, 64), nn.GELU(), nn.Linear(64, 10))


class TestSimulated(rig.TorchTestCase):
    def test_a_model_trains(self) -> None:
        model = Convolutions().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        targets = torch.zeros(4, dtype=torch.long, device="cuda")
        for _ in range(3):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                output = model(torch.randn(4, 3, 16, 16, device="cuda"))
                loss = nn.functional.cross_entropy(output, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(output.shape, (4, 10))
        self.assertEqual(len(optimizer.state), len(list(model.parameters())))
        self.assertGreater(torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated())

    def test_attention_of_half_precision_trains(self) -> None:
        layer = nn.TransformerEncoderLayer(64, 4, batch_first=True).cuda().half()
        layer(torch.randn(2, 128, 64, device="cuda", dtype=torch.half)).sum().backward()
        self.assertTrue(all(p.grad is not None for p in layer.parameters()))

    def test_a_graph_replays_copies(self) -> None:
        source = torch.arange(1000.0).to("cuda")
        target = torch.empty(1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            product = source * 2
            target.copy_(source)
        for first in (5.0, 6.0):
            source.copy_(torch.full((1000,), first))
            graph.replay()
            torch.cuda.synchronize()
            self.assertEqual(target.cpu()[0].item(), first)
        graph.reset()
        del product

    def test_streams_and_events_order_copies(self) -> None:
        stream = torch.cuda.Stream()
        event = torch.cuda.Event()
        host = torch.full((1 << 16,), 3.0).pin_memory()
        with torch.cuda.stream(stream):
            tensor = torch.empty(1 << 16, device="cuda")
            tensor.copy_(host, non_blocking=True)
            event.record()
        torch.cuda.current_stream().wait_event(event)
        copy = torch.empty_like(tensor).copy_(tensor)
        self.assertTrue(bool((copy.cpu() == 3).all()))
        self.assertTrue(event.query())

    def test_processes_share_tensors_both_ways(self) -> None:
        context = torch.multiprocessing.get_context("spawn")
        there, back, done = context.Queue(), context.Queue(), context.Event()
        child = context.Process(target=change, args=(there, back, done))
        child.start()
        tensor = torch.arange(1 << 18).to("cuda")
        there.put(tensor)
        received = back.get(timeout=120)
        self.assertTrue(bool((received.cpu() == torch.arange(1 << 18)).all()))
        self.assertTrue(bool((tensor.cpu() == 2 * torch.arange(1 << 18)).all()))
        del received
        done.set()
        child.join()
        self.assertEqual(child.exitcode, 0)
        torch.cuda.ipc_collect()

    def test_what_is_not_there_says_so(self) -> None:
        with torch.backends.cudnn.flags(enabled=True):
            image, kernel = torch.empty(1, 3, 8, 8), torch.empty(4, 3, 3, 3)
            with self.assertRaisesRegex(RuntimeError, "switch|cudnn.enabled = False"):
                nn.functional.conv2d(image.cuda(), kernel.cuda())

    def test_the_device_is_what_weir_conf_says(self) -> None:
        self.assertEqual(torch.cuda.device_count(), 2)
        self.assertEqual(torch.cuda.get_device_properties(1).total_memory, 8 * rig.GIB)
        self.assertEqual(torch.cuda.get_device_name(0), "Weir simulated GPU")

    def test_nothing_of_nvidia_is_loaded(self) -> None:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split()[-1] for line in maps if "/" in line}
        names = ("libcudart", "libcublas", "libcudnn", "libnccl", "libcuda.so", "libnvidia-ml")
        build = os.path.realpath(os.path.join(os.environ["WEIR_TEST_LIBRARIES"], "..", ".."))
        found = [path for path in paths if os.path.basename(path).startswith(names)]
        self.assertGreaterEqual(len(found), len(names))
        for path in found:
            self.assertTrue(path.startswith(build), path)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    unittest.main()
