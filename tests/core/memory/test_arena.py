"""Memory that is used again: live tensors never overlap, and free memory is found."""

import contextlib
import gc
import mmap
import random
import subprocess
import sys
import threading
from collections import deque

import numpy as np
import torch
from hypothesis import given, settings, strategies

from hpcgnn.memory import resident
from hpcgnn.memory.arena import GRAIN, SMALL, Arena, recycled
from hpcgnn.nn.linear import Linear

ROW = SMALL // 4  # numbers of float32 in the smallest tensor that the arena makes


def span(tensor):
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes


@settings(deadline=None, max_examples=60)
@given(strategies.lists(strategies.tuples(strategies.booleans(), strategies.integers(1, 40)), max_size=40))
def test_tensors_that_are_alive_do_not_overlap(script):
    arena, alive = Arena(), []
    for drop, rows in script:
        if drop and alive:
            alive.pop(rows % len(alive))
        else:
            alive.append((arena.empty(rows, ROW // 2 * 3).fill_(rows), rows))
        spans = sorted(span(t) for t, _ in alive)
        assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:]))
        assert arena.taken == sum(-(-t.nbytes // GRAIN) * GRAIN for t, _ in alive) <= arena.nbytes
    assert all(bool((t == rows).all()) for t, rows in alive)
    alive.clear()
    assert arena.taken == 0 and sum(arena.free_sizes()) == arena.nbytes
    assert sorted(arena.free_sizes()) == sorted(size for _, size in arena.pieces()), (
        "what is free has been joined again"
    )


def test_a_view_keeps_the_memory():
    arena = Arena()
    x = arena.empty(4, ROW, dtype=torch.float64).zero_()
    row, address = x[1], x.data_ptr()
    del x
    assert arena.taken > 0
    other = arena.empty(4, ROW, dtype=torch.float64).fill_(7)
    assert other.data_ptr() != address and bool((row == 0).all())
    del row
    gc.collect()
    assert arena.empty(4, ROW, dtype=torch.float64).data_ptr() == address


def test_resident_bytes_of_a_mapping(monkeypatch):
    """As many as pages were written, however little is read of the kernel's table at once."""
    with contextlib.closing(mmap.mmap(-1, 300 * mmap.PAGESIZE + 1)) as memory:
        pages = np.frombuffer(memory, np.uint8)
        address, pages[: 70 * mmap.PAGESIZE], pages[-1] = pages.ctypes.data, 1, 1
        del pages
        for at_once in (resident._AT_ONCE, 64):
            monkeypatch.setattr(resident, "_AT_ONCE", at_once)
            assert resident.mapped_bytes([(address, len(memory))]) == 71 * mmap.PAGESIZE
            assert resident.mapped_bytes([(address, 10), (address, 80 * mmap.PAGESIZE)]) == 71 * mmap.PAGESIZE
        assert resident.mapped_bytes([]) == 0


def test_memory_that_the_collector_returns_is_taken_once():
    """The collector may run within any statement of the arena; at one of these thresholds it does."""
    arena, alive, sizes = Arena(), deque(maxlen=20), random.Random(0)
    before = gc.get_threshold()
    try:
        for number in range(1600):
            gc.set_threshold(1 + number % 16)
            cycle = [arena.empty(sizes.randint(1, 6), ROW), arena.keep(torch.empty(SMALL, dtype=torch.uint8))]
            cycle.append(cycle)
            del cycle
            tensor = arena.empty(sizes.randint(1, 6), ROW)
            first, last = span(tensor)
            assert all(last <= begin or end <= first for begin, end in map(span, alive))
            alive.append(tensor)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert arena.taken == sum(tensor.nbytes for tensor in alive)
    assert sum(arena.free_sizes()) == arena.nbytes - arena.taken


def test_operators_take_memory_of_their_threads_arena():
    """Those that know no graph, too; a thread without an arena has malloc's, and so has one whose arena is gone."""
    found = []

    def run(arena):
        linear = Linear(ROW // 64, ROW // 64)
        x = torch.zeros(64, ROW // 64, requires_grad=True)
        y = linear(x)
        found.append([arena is not None and arena.holds(each) for each in (y, *torch.autograd.grad(y.sum(), x))])

    def of_rank():
        arena = Arena().serve()
        run(arena)
        del arena
        assert not Arena().holds(recycled(ROW, dtype=torch.float32))
        run(None)

    thread = threading.Thread(target=of_rank)
    thread.start()
    thread.join()
    assert found == [[True, True], [False, False]]


POLICY = """
import torch
from hpcgnn.memory.resident import heap_bytes, set_allocator_policy
free = []
for threads in (1, 8):
    in_force = set_allocator_policy(threads)
    tensors = [torch.zeros(1 << 24) for _ in range(2)]
    del tensors[0], tensors
    free.append(heap_bytes()[1] >> 20)
    assert in_force
print(*free)
"""


def test_many_threads_keep_what_is_free():
    done = subprocess.run([sys.executable, "-c", POLICY], capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split())
    assert few < 32 <= 128 <= many, f"MiB that malloc keeps: {done.stdout}"
