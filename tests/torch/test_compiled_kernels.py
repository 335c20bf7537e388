"""Kernels that PyTorch compiles at run time (NVRTC) on the simulated GPU: they are compiled, loaded and
launched as others, and compute nothing. What is tested is that models which need them run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

import rig  # before torch
import device_control
import torch
import torchvision
from torch import nn
from torch.cuda import jiterator
from weir._standins import switch_off_cudnn

switch_off_cudnn()


def launches() -> int:
    """Of functions of modules. The kernels that PyTorch has in its libraries are launched otherwise."""
    return device_control.call_count("cuLaunchKernel")


_SOURCE = """
extern "C" __global__ void scale(float* data, float factor, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] *= factor;
}
"""


class TestCompiledKernels(rig.TorchTestCase):
    def test_operators_that_are_compiled_when_first_used_run(self) -> None:
        x = torch.rand(1000, device="cuda")
        special = torch.special
        operators: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
            torch.erfinv, torch.lgamma, torch.digamma, torch.i0, torch.sinc, special.i0e,
            special.i1, special.entr, special.erfcx, special.ndtri, special.log_ndtr,
            special.bessel_j0, special.modified_bessel_k1, special.airy_ai)
        for operator in operators:
            with self.subTest(operator.__name__):
                before = launches()
                self.assertEqual(operator(x).shape, x.shape)
                self.assertEqual(launches(), before + 1)
        for binary in (torch.gcd, torch.lcm):
            n = torch.ones(1000, dtype=torch.long, device="cuda")
            self.assertEqual(binary(n, n).shape, n.shape)
        self.assertEqual(special.zeta(x, x).shape, x.shape)
        self.assertEqual(special.chebyshev_polynomial_t(x, x).shape, x.shape)
        self.assertEqual(torch.ones(100, dtype=torch.complex64, device="cuda").prod().shape, ())
        torch.cuda.synchronize()

    def test_users_make_operators_with_jiterator(self) -> None:
        one = jiterator._create_jit_fn(
            "template <typename T> T f(T x, T y, T alpha) { return x + alpha * y; }", alpha=1.0)
        two = jiterator._create_multi_output_jit_fn(
            "template <typename T> void g(T x, T& a, T& b) { a = x; b = -x; }", num_outputs=2)
        x = torch.rand(10, 100, device="cuda")
        before = launches()
        self.assertEqual(one(x, x[0], alpha=2.0).shape, (10, 100))
        self.assertEqual([y.shape for y in two(x)], [x.shape, x.shape])
        self.assertEqual(launches(), before + 2)

    def test_users_compile_kernels(self) -> None:
        scale = torch.cuda._compile_kernel(_SOURCE, "scale")
        x = torch.full((1000,), 3.0).to("cuda")
        scale(grid=(4, 1, 1), block=(256, 1, 1), args=[x, 2.0, 1000])
        self.assertEqual(x.cpu()[0].item(), 3.0)  # it did nothing
        with self.assertRaisesRegex(RuntimeError, "invalid argument"):
            scale(grid=(4, 1, 1), block=(2048, 1, 1), args=[x, 2.0, 1000])

    def test_a_graph_has_compiled_kernels_that_were_used_before(self) -> None:
        x = torch.rand(1000, device="cuda")
        torch.special.bessel_y0(x)
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            before = launches()
            y = torch.special.bessel_y0(x)
            self.assertEqual(launches(), before + 1)
        graph.instantiate()
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(y.shape, x.shape)
        graph.reset()

    def test_torchscript_fuses(self) -> None:
        @torch.jit.script
        def fused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.relu(x * y + 1.0) * torch.sigmoid(y)

        x = torch.rand(64, 64, device="cuda")
        before = launches()
        for _ in range(4):  # it is compiled when it has run twice
            self.assertEqual(fused(x, x).shape, x.shape)
        self.assertGreater(launches(), before)

    def test_initializations_of_transformers_run(self) -> None:
        weight = torch.empty(64, 64, device="cuda")
        self.assertIs(nn.init.trunc_normal_(weight, std=0.02), weight)

    def test_a_vision_transformer_is_made_on_the_gpu_and_trains(self) -> None:
        with torch.device("cuda"):
            model = torchvision.models.vit_b_16(num_classes=10)
        self.assertTrue(all(p.is_cuda for p in model.parameters()))
        model(torch.randn(2, 3, 224, 224, device="cuda")).sum().backward()
        self.assertTrue(all(p.grad is not None for p in model.parameters()))

    def test_what_was_compiled_is_not_kept_for_real_gpus(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            rig.script_output("torch.erfinv(torch.rand(9, device='cuda')); torch.cuda.synchronize()",
                              PYTORCH_KERNEL_CACHE_PATH=folder)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    rig.main()
