"""What the other processes of test_ipc.py do. Each is spawned: it imports `rig` and has the same allocator."""

from __future__ import annotations

from typing import Any

import rig  # before torch
import torch


def fill(queue: Any, done: Any) -> None:
    """Gets tensors of another process and writes 4 into the first."""
    tensors = queue.get()
    tensors[0].copy_(torch.full(tensors[0].shape, 4.0))
    torch.cuda.synchronize()
    done.set()


def send(queue: Any, done: Any) -> None:
    """Sends one tensor twice, and keeps it until told."""
    tensor = torch.ones(5, 5).cuda()
    for _ in range(2):
        queue.put(tensor)
    done.wait()


def send_and_delete(queue: Any, done: Any, count: int, size: int, device: int = 0) -> None:
    """Sends `count` tensors that hold their number, and keeps none."""
    for number in range(count):
        queue.put(torch.full([size], number, dtype=torch.int64).to(f"cuda:{device}"))
    done.wait()


def receive_and_forward(source: Any, target: Any, done: Any, count: int) -> None:
    for _ in range(count):
        target.put(source.get().clone())
    done.wait()


def receive_and_sum(source: Any, target: Any, count: int) -> None:
    """Sends the sum of the first elements of `count` tensors."""
    target.put(sum(source.get()[0].item() for _ in range(count)))


def send_storages(queue: Any, done: Any) -> None:
    """Sends the parts from which rebuild_cuda_tensor makes the halves of one tensor."""
    parts = []
    for tensor in torch.ones(2).cuda().chunk(2):
        storage = tensor.untyped_storage()
        names = ("storage_device", "storage_handle", "storage_size_bytes", "storage_offset_bytes",
                 "ref_counter_handle", "ref_counter_offset", "event_handle", "event_sync_required")
        parts.append({"tensor_cls": torch.Tensor, "tensor_size": tensor.shape,
                      "tensor_stride": tensor.stride(), "tensor_offset": tensor.storage_offset(),
                      "dtype": tensor.dtype, "requires_grad": False,
                      "storage_cls": torch.UntypedStorage, **dict(zip(names, storage._share_cuda_()))})
    queue.put(parts)
    done.wait()


def sum_each(source: Any, target: Any) -> None:
    """For each tensor of a list: its sum, its device and how many elements it has."""
    with torch.cuda.device(1):
        target.put([(t.cpu().sum().item(), t.get_device(), t.numel()) for t in source.get()])


def send_mixed(queue: Any, taken: Any, rounds: int) -> None:
    """Float and byte tensors out of one segment, one pair after the other."""
    for _ in range(rounds):
        queue.put(torch.ones(2, 2).cuda())
        queue.put(torch.zeros(2, 2, dtype=torch.uint8).cuda())
        taken.wait()
        taken.clear()


def change_parameter(queue: Any, ready: Any, modified: Any, is_parameter: bool) -> None:
    """Gets a variable, checks what its owner wrote, and writes into it and its gradient."""
    variable = queue.get()
    ready.set()
    modified.wait()
    expected = torch.arange(1.0, 26).view(5, 5)
    expected[0, 0] = 1000
    good = torch.equal(variable.data.cpu(), expected) and variable.grad is None
    good = good and isinstance(variable, torch.nn.Parameter) == is_parameter
    variable.data.copy_(torch.ones(5, 5))
    torch.cuda.synchronize()
    queue.put(good)


def wait_for_event(event: Any, from_parent: Any, to_parent: Any) -> None:
    """Waits on the device's behalf for an event that the parent records."""
    to_parent.put("ready")
    from_parent.get()
    event.synchronize()
    to_parent.put("synchronized")
    from_parent.get()


def wait_for_handle(handle: bytes, from_parent: Any, to_parent: Any) -> None:
    wait_for_event(torch.cuda.Event.from_ipc_handle(0, handle), from_parent, to_parent)


def record_handle(handle: bytes, from_parent: Any, to_parent: Any) -> None:
    """Records the parent's event."""
    event = torch.cuda.Event.from_ipc_handle(torch.cuda.current_device(), handle)
    stream = torch.cuda.Stream()
    event.record(stream)
    stream.synchronize()
    to_parent.put("recorded")
    from_parent.get()


def hold_until_told(queue: Any, taken: Any, done: Any) -> None:
    """Gets one tensor, says so, and drops it when told."""
    tensor = queue.get()
    taken.put(tensor[0].item())
    done.wait()
    del tensor
    torch.cuda.ipc_collect()
    taken.put("dropped")
