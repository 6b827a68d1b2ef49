"""Widths of narrowed numbers: within the budget, and as little noise as any choice within it has."""

import itertools

import numpy as np
import pytest
from hpcgnn.exchange.widths import Item, chosen

BITS = {"int2": 2, "int4": 4, "int8": 8}


def noise(items, ranges, kinds):
    """In shares of its stream's ranges, by the definition."""
    streams = {item[:2] for item in items}
    total = {s: sum(r for i, r in zip(items, ranges) if i[:2] == s) for s in streams}
    return sum(r / total[i[:2]] / (2 ** BITS[k] - 1) ** 2 for i, r, k in zip(items, ranges, kinds))


def spent(numbers, kinds):
    return sum(n * BITS[k] for n, k in zip(numbers, kinds))


@pytest.mark.parametrize("seed", range(20))
def test_near_the_least_noise(seed):
    """No choice of the same bits is better, and none within the budget is better by more than the last step."""
    random = np.random.default_rng(seed)
    items = [Item(stream, bool(seed % 2), turn) for stream in (1, 2) for turn in range(3)]
    ranges, numbers = random.exponential(size=6) ** 3, np.full(6, 100.0)
    bits = float(random.uniform(2, 8))
    kinds = chosen(items, ranges, numbers, bits)
    assert spent(numbers, kinds) <= bits * 600
    every = [each for each in itertools.product(BITS, repeat=6) if spent(numbers, each) <= spent(numbers, kinds)]
    least = min(noise(items, ranges, each) for each in every)
    assert noise(items, ranges, kinds) <= least * (1 + 1e-9)


def test_large_numbers_and_small_streams_get_more():
    items = [Item(1, False, 0), Item(1, False, 1), Item(2, False, 0)]
    assert chosen(items, np.array([1.0, 100.0, 1e-9]), np.array([10.0, 10.0, 1.0]), 3.3) == ["int2", "int4", "int8"]


def test_ends():
    items = [Item(1, False, 0), Item(1, True, 0), Item(2, False, 0)]
    numbers = np.array([5.0, 5.0, 0.0])
    assert chosen(items, np.ones(3), numbers, 2.0) == ["int2"] * 3
    assert chosen(items, np.ones(3), numbers, 8.0) == ["int8", "int8", "int2"], "what sends nothing costs nothing"
    assert chosen(items, np.zeros(3), numbers, 8.0) == ["int8", "int8", "int2"]
    assert chosen([], np.zeros(0), np.zeros(0), 4.0) == []
