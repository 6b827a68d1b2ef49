"""The account of memory: each storage once, and results of torch's operations while they last."""

import numpy as np
import torch

from hpcgnn.memory.arena import Arena
from hpcgnn.memory.resident import heap_bytes
from hpcgnn.plugins.account import held_bytes
from hpcgnn.plugins.memory_use import LiveTensors

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


def test_malloc_says_what_it_has_given_and_what_it_keeps():
    before, _ = heap_bytes()
    pieces = [torch.empty(MIB, dtype=torch.uint8), torch.empty(9 * MIB, dtype=torch.uint8)]  # of the heap, and mapped
    given, _ = heap_bytes()
    assert given == 0 or 10 * MIB <= given - before <= 11 * MIB
    assert sum(piece.nbytes for piece in pieces) == 10 * MIB


def test_what_operations_make_counts_while_it_lives():
    """Views and results in place are nothing new; the backward pass counts; memory of the arena counts once."""
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
