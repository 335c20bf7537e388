"""Real models, trained and run with PyTorch's CUDA build, for what they do to memory.

    workloads.py NAME [--steps N]

Kernels need not compute anything, so these run on the simulated GPU (`python -m weir dry-run`, or
bench/torch/run for all of them with each allocator). Sizes of batches and sequences vary from step to
step, as they do in practice: that is what fragments memory.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch

DEVICE = "cuda"
WORKLOADS: dict[str, tuple[Callable[[int], None], int]] = {}


def workload(steps: int) -> Callable[[Callable[[int], None]], Callable[[int], None]]:
    def register(function: Callable[[int], None]) -> Callable[[int], None]:
        WORKLOADS[function.__name__] = (function, steps)
        return function

    return register


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.long, device=DEVICE)


def made_on_gpu(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    with torch.device(DEVICE):
        return make()


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def llama(hidden: int, layers: int, heads: int) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=4,
        vocab_size=32000,
    )
    return made_on_gpu(lambda: LlamaForCausalLM(config))


def generate(model: torch.nn.Module, batch: int, prompt: int, new: int) -> None:
    """A prompt and then one token at a time, with a cache of keys and values that grows."""
    from transformers.cache_utils import DynamicCache

    cache = DynamicCache()
    model(tokens(batch, prompt), past_key_values=cache, use_cache=True)
    for _ in range(new):
        model(tokens(batch, 1), past_key_values=cache, use_cache=True)


@workload(steps=6)
def gpt2_train(steps: int) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = made_on_gpu(lambda: GPT2LMHeadModel(GPT2Config()))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        x = tokens(random.choice([8, 12, 16]), random.choice([384, 512, 768, 1024]))
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(x, labels=x).loss
        train(model, optimizer, loss)


@workload(steps=4)
def llama_checkpointing(steps: int) -> None:
    torch.set_default_dtype(torch.bfloat16)
    model = llama(2048, 16, 32)
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        x = tokens(4, random.randint(512, 4096))
        train(model, optimizer, model(x, labels=x, use_cache=False).loss)


@workload(steps=3)
def llama_generate(steps: int) -> None:
    torch.set_default_dtype(torch.float16)
    model = llama(2048, 12, 32).eval()
    with torch.no_grad():
        for _ in range(steps):
            generate(model, random.randint(1, 32), random.randint(64, 2048), random.randint(16, 48))


@workload(steps=6)
def resnet_multiscale(steps: int) -> None:
    import torchvision

    model = made_on_gpu(torchvision.models.resnet50)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        side = random.choice(range(320, 673, 32))
        x = torch.empty(32, 3, side, side, device=DEVICE)
        train(model, optimizer, model(x).float().mean())


@workload(steps=3)
def unet_diffusion(steps: int) -> None:
    from diffusers import UNet2DConditionModel

    torch.set_default_dtype(torch.float16)
    model = made_on_gpu(
        lambda: UNet2DConditionModel(
            cross_attention_dim=768,
            block_out_channels=(320, 640, 1280, 1280),
            attention_head_dim=8,
        )
    )
    sides = [64, 80, 96, 112, 128]
    with torch.no_grad():
        for _ in range(steps):
            batch = random.choice([2, 4, 8])
            x = torch.empty(batch, 4, random.choice(sides), random.choice(sides), device=DEVICE)
            text = torch.empty(batch, 77, 768, device=DEVICE)
            for _ in range(3):
                model(x, torch.zeros((), device=DEVICE), text)


@workload(steps=3)
def rlhf_alternate(steps: int) -> None:
    torch.set_default_dtype(torch.bfloat16)
    model, reference = llama(1024, 10, 16), llama(1024, 10, 16)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        prompt, new = random.randint(64, 512), random.randint(24, 48)
        with torch.no_grad():
            generate(model, 16, prompt, new)
        for _ in range(4):
            x = tokens(4, prompt + new)
            with torch.no_grad():
                before = torch.log_softmax(reference(x).logits.float(), -1)
            now = torch.log_softmax(model(x).logits.float(), -1)
            (now - before).mean().backward()
            del before, now
        optimizer.step()
        optimizer.zero_grad()


@workload(steps=3)
def sharded_streams(steps: int) -> None:
    """Parameters in shards, gathered on a side stream just before their layer needs them."""
    torch.set_default_dtype(torch.bfloat16)
    layers, hidden = 16, 4096
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    shards = [torch.empty(12 * hidden * hidden // 8, device=DEVICE) for _ in range(layers)]

    def gather(layer: int) -> tuple[torch.Tensor, Any]:
        with torch.cuda.stream(side):
            weight = torch.empty(12 * hidden * hidden, device=DEVICE)
            weight[: shards[layer].numel()].copy_(shards[layer])
            return weight, side.record_event()

    for _ in range(steps):
        x = torch.empty(4, random.choice([1024, 1536, 2048]), hidden, device=DEVICE)
        kept = []
        ahead = gather(0)
        for layer in range(layers):
            weight, ready = ahead
            if layer + 1 < layers:
                ahead = gather(layer + 1)
            main.wait_event(ready)
            weight.record_stream(main)
            square = hidden * hidden
            inner = x @ weight[: 4 * square].view(hidden, 4 * hidden)
            out = torch.nn.functional.gelu(inner) @ weight[4 * square : 8 * square].view(
                4 * hidden, hidden
            )
            kept.append((x, inner))
            x = x + out
            del weight, out, inner
        gradient = torch.empty_like(x)
        for layer in reversed(range(layers)):
            weight, ready = gather(layer)
            main.wait_event(ready)
            weight.record_stream(main)
            of_weight = torch.empty(12 * hidden * hidden, device=DEVICE)
            x, inner = kept.pop()
            gradient = gradient @ weight[: hidden * hidden].view(hidden, hidden)
            with torch.cuda.stream(side):
                reduced = torch.empty(12 * hidden * hidden // 8, device=DEVICE)
                of_weight.record_stream(side)
            del weight, of_weight, inner, reduced


@workload(steps=4)
def t5_seq2seq(steps: int) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=768,
        d_ff=3072,
        num_layers=12,
        num_heads=12,
        d_kv=64,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    model = made_on_gpu(lambda: T5ForConditionalGeneration(config))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        x = tokens(random.randint(4, 24), random.randint(32, 512))
        y = tokens(x.shape[0], random.randint(8, 256))
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(input_ids=x, labels=y).loss
        train(model, optimizer, loss)


@workload(steps=5)
def vit_evaluation_between(steps: int) -> None:
    import torchvision

    model = made_on_gpu(torchvision.models.vit_b_16)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        x = torch.empty(random.choice([48, 64, 96]), 3, 224, 224, device=DEVICE)
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = model(x).float().mean()
        train(model, optimizer, loss)
        del loss
        if step % 2 == 1:
            with torch.no_grad():
                for _ in range(2):
                    model(torch.empty(random.choice([128, 200, 256]), 3, 224, 224, device=DEVICE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(WORKLOADS))
    parser.add_argument("--steps", type=int, help="default: few")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    random.seed(0)
    torch.manual_seed(0)
    function, steps = WORKLOADS[options.name]
    function(options.steps or steps)


if __name__ == "__main__":
    main()
