"""Rows in few bits: levels, factors and layout by the definition, unbiased, the same bits from every implementation."""

import kernel_oracle as oracle
import numpy as np
import pytest
import torch

from hpcgnn.kernels import library, narrow, reference, stream_key, widen
from hpcgnn.kernels.narrowing import BITS

WIDTHS = [1, 2, 3, 5, 8, 31, 40, 64, 100, 601, 1030]
KEY = stream_key(7, 1)
DTYPES = [torch.float32, torch.float64]


def rows(count, width, dtype=torch.float32, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=random, dtype=dtype) * torch.logspace(-3, 3, count, dtype=dtype)[:, None]
    x[::3].clamp_(min=0)  # as after a ReLU
    return x


def narrowed(x, bits, ids=None, index=None, scale=None, key=KEY):
    count = len(x) if index is None else len(index)
    kind, of_factors, number = BITS[bits]
    out = torch.empty(count, -(-x.shape[1] * bits // 8), dtype=kind)
    factors = torch.empty(count, number, dtype=of_factors)
    narrow(out, factors, x, torch.arange(count) + 5 if ids is None else ids, key, bits, index, scale)
    return out, factors


def widened(x, bits, **more):
    out, factors = narrowed(x, bits, **more)
    result = x.new_empty(len(out), x.shape[1])
    widen(result, out, factors, bits)
    return result


def expected(x, bits, ids):
    """Row by row in numpy, from words of the oracle's Philox."""
    number = x.numpy().dtype.type
    result = np.empty(x.shape, number)
    for i, row in enumerate(x.numpy()):
        words = np.array([oracle.word(KEY, int(ids[i]), c) for c in range(x.shape[1])], np.int64)
        draws = ((words >> 8) * 2.0**-24).astype(number)
        if bits == 8:
            step = np.float32(np.abs(row).max() / number(127))
            levels = np.clip(np.floor(row / number(step) + draws), -127, 127) if step else np.zeros_like(row)
            result[i] = levels.astype(np.float32) * step
            continue
        most = 2**bits - 1
        least = towards(row.min(), -1)
        step = towards((row.max() - number(least)) / number(most), 1)
        levels = (
            np.clip(np.floor((row - number(least)) / number(step) + draws), 0, most) if step else np.zeros_like(row)
        )
        result[i] = levels.astype(number) * number(step) + number(least)
    return torch.from_numpy(result)


def towards(x, up):
    """The bfloat16 next to x on one side, or x: found by trying."""
    bits = torch.tensor(float(x)).view(torch.int32).item() >> 16
    near = [
        torch.tensor((bits + d) << 16, dtype=torch.int64).to(torch.int32).view(torch.float32).item() for d in (-1, 0, 1)
    ]
    near += [0.0] if x == 0 else []
    return (min if up > 0 else max)(v for v in near if np.isfinite(v) and up * v >= up * float(x))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 3, 8, 40])
def test_by_the_definition(kernels, bits, dtype, width):
    x, ids = rows(7, width, dtype), torch.tensor([3, 0, 2**33, 7, 9, 11, 2**62])
    assert torch.equal(widened(x, bits, ids=ids), expected(x, bits, ids))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", WIDTHS)
def test_all_implementations_give_the_same_bits(kernels, threads, bits, width):
    for dtype in DTYPES:
        x, index = rows(90, width, dtype), torch.randint(0, 90, (200,), dtype=torch.int32)
        scale = torch.rand(90, dtype=dtype)
        out, factors = narrowed(x, bits, index=index, scale=scale)
        result = x.new_empty(200, width)
        widen(result, out, factors, bits)
        before = library.use(library.Loaded(reference, reason="a test"))
        other, beside = narrowed(x, bits, index=index, scale=scale)
        again = x.new_empty(200, width)
        widen(again, other, beside, bits)
        library.use(before)
        assert torch.equal(out, other) and torch.equal(factors, beside) and torch.equal(result, again)
        assert torch.equal(out, narrowed((x * scale[:, None])[index.long()], bits)[0])


@pytest.mark.parametrize("bits", BITS)
def test_right_in_the_mean_and_within_a_step(kernels, bits):
    x = rows(1, 64, seed=3).repeat(20_000, 1)
    found = widened(x, bits, ids=torch.arange(20_000))
    step = (x[0].abs().max() / 127) if bits == 8 else (x[0].max() - x[0].min()) / (2**bits - 1)
    assert (found - x).abs().max() <= step * 1.02
    # A mean of 20,000 draws, each within a step: five deviations.
    assert (found.mean(0) - x[0]).abs().max() < 5 * step / 2 / 20_000**0.5


@pytest.mark.parametrize("bits", BITS)
def test_ends_stay(kernels, bits):
    """Zeros of rows without negative numbers, rows of one number, and the ends of the range are as they were."""
    x = torch.tensor([[0.0, 3.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0], [-1.0, -1.0, -1.0, -1.0]])
    found = widened(x, bits)
    assert (found[0, [0, 2]] == 0).all() and (found[1] == 0).all()
    torch.testing.assert_close(found[2:], x[2:], rtol=1e-6, atol=0)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_does_not_look_like_a_number(kernels, bits, wrong):
    x = rows(3, 40)
    x[1, 17] = wrong
    found = widened(x, bits)
    assert not found[1].isfinite().any() and found[[0, 2]].isfinite().all()


def test_empty(kernels):
    for bits in BITS:
        assert widened(torch.empty(0, 5), bits).shape == (0, 5)
        assert widened(torch.empty(4, 0), bits).shape == (4, 0)


def test_rows_apart(kernels):
    """Rows of x, of what is written and of what is read may be any distance apart."""
    wide = rows(6, 50)
    x = wide[:, 3:43]
    for bits in BITS:
        out, factors = narrowed(x.contiguous(), bits)
        memory = torch.full((6, out.shape[1] + 3), 77, dtype=out.dtype)
        narrow(memory[:, : out.shape[1]], factors, x, torch.arange(6) + 5, KEY, bits)
        assert torch.equal(memory[:, : out.shape[1]], out) and (memory[:, out.shape[1] :] == 77).all()
        result = torch.full((6, 50), 5.0)
        widen(result[:, 3:43], memory[:, : out.shape[1]], factors, bits)
        assert (result[:, :3] == 5).all() and (result[:, 43:] == 5).all()


def test_what_is_refused():
    x = torch.zeros(3, 8)
    with pytest.raises(ValueError, match="bits: expected one of 8, 4, 2, got 3"):
        narrow(torch.empty(3, 3, dtype=torch.uint8), torch.empty(3, 2), x, torch.arange(3), KEY, 3)
    with pytest.raises(ValueError, match=r"narrow: expected shape \(3, 4\), got \(3, 8\)"):
        narrow(
            torch.empty(3, 8, dtype=torch.uint8), torch.empty(3, 2, dtype=torch.bfloat16), x, torch.arange(3), KEY, 4
        )
    with pytest.raises(ValueError, match="factors"):
        widen(x, torch.empty(3, 8, dtype=torch.int8), torch.empty(3, 2), 8)
    with pytest.raises(ValueError, match="x: expected"):
        narrow(torch.empty(3, 8, dtype=torch.int8), torch.empty(3, 1), x.bfloat16(), torch.arange(3), KEY, 8)
