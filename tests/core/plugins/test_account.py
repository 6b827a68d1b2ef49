"""The account of memory: each storage once, what torch's operations make while they last, marks that belong to their
phase.
"""

import numpy as np
import pytest
import torch

from hpcgnn.memory.arena import Arena
from hpcgnn.memory.resident import MMAP_THRESHOLD, PeakMemory
from hpcgnn.plugins.account import held_bytes
from hpcgnn.plugins.memory_use import LiveTensors, MemoryProfile

MIB = 2**20


def test_each_storage_counts_once():
    whole = torch.zeros(100)
    parameter = torch.nn.Parameter(torch.zeros(10))
    parameter.grad = torch.zeros(10)
    ring = [whole[:50], {"view": whole[50:]}, (parameter, np.zeros(3))]
    ring.append(ring)
    seen = set()
    assert held_bytes(ring, seen) == 400 + 80 + 24
    assert held_bytes(whole, seen) == 0


def test_what_operations_make_counts_while_it_lives():
    """Views and results in place are nothing new; the backward pass counts; what the arena has is not counted twice."""
    arena = Arena()
    live, x = LiveTensors(), torch.ones(MIB // 4, requires_grad=True)
    live.begin(afresh=True)
    with live:
        y = x * 2
        y[:10].add_(1)
        z = y.view(2, -1).t() * 3
        del y
        torch.zeros(10)
    assert live.height == 2 * MIB, "y and z; y had gone when the ten came"
    live.begin(afresh=False)
    with live:
        z.pow(2).sum().backward()
    assert 4 * MIB <= live.height <= 6 * MIB + 100, "z, its square or two gradients"
    live.begin(afresh=True)
    with live:
        taken = arena.empty(MIB)
        taken.zero_()
        other = taken + 1
    assert arena.taken == 4 * MIB and live.height == other.nbytes


def test_what_is_watched_gives_the_same():
    """Settings by name reach the operation, also where it has none by place."""
    x = torch.arange(6.0).view(2, 3)
    with LiveTensors():
        found = [
            torch.full((2,), 3.0, dtype=torch.float64),
            torch.std(x, dim=1, correction=0),
            torch.add(x, x, alpha=4),
        ]
    expected = [torch.full((2,), 3.0, dtype=torch.float64), torch.std(x, dim=1, correction=0), 5 * x]
    for one, other in zip(found, expected):
        assert one.dtype == other.dtype and torch.equal(one, other)


def test_what_small_tensors_leave_on_the_heap():
    """Those below the size that the allocator takes from the system; what a phase has not of them is free then."""
    live = LiveTensors()
    watch = MemoryProfile(PeakMemory(), Arena(), live)
    with watch("forward"):
        small, large = torch.ones(MIB // 4), torch.ones(MMAP_THRESHOLD)
    del small, large
    with watch("step"):
        torch.ones(10)
    assert watch.made == {"forward": MIB + 4 * MMAP_THRESHOLD, "step": 40}
    assert watch.on_heap == {"forward": MIB, "step": 40}


def test_marks_belong_to_their_phase():
    """The kernel's mark is reset between phases, and the mark of the whole span survives that."""
    size, peak, arena = 64 << 20, PeakMemory(), Arena()
    if not peak.begin_span():
        pytest.skip("this kernel does not let the high-water mark be reset")
    watch = MemoryProfile(peak, arena, LiveTensors())
    with watch("forward"):
        torch.ones(size // 4)
    with watch("step"):
        torch.ones(10)
    assert watch.marks["forward"] - watch.marks["step"] > 0.9 * size
    assert watch.made == {"forward": size, "step": 40}
    peak.read()
    assert peak.overall >= peak.span >= watch.marks["forward"]
    peak.begin_span()
    assert watch.marks["forward"] - peak.span > 0.9 * size
