"""Codes of kept rows: signs and zeros stay, rounding is unbiased, and the compiled kernel has the bits of torch's."""

import torch

from hpcgnn.kernels import coding, decode, encode, stream_key

KEY = stream_key(7, 1, 2)


def rows(n: int, width: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Rows of many magnitudes with zeros, tiny numbers and an empty row among them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, generator=generator, dtype=dtype) * 10.0 ** torch.randint(
        -3, 3, (n, 1), generator=generator
    )
    x[:, ::3] *= 1e-6
    x[torch.rand(n, width, generator=generator) < 0.3] = 0
    x[n // 2] = 0
    return x


def coded(x: torch.Tensor, ids: torch.Tensor, key: int = KEY) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    codes = torch.empty(x.shape, dtype=torch.int8)
    steps, back = torch.empty(len(x), -(-x.shape[1] // coding.BLOCK)), torch.empty_like(x)
    encode(codes, steps, x, ids, key)
    decode(back, codes, steps)
    return codes, steps, back


def test_signs_and_errors():
    """No sign is lost, nothing becomes 0, and no number moves by more than a step of its block."""
    x = rows(64, 300)
    _, steps, back = coded(x, torch.arange(64))
    assert torch.equal(back.sign(), x.sign())
    wide = steps.repeat_interleave(coding.BLOCK, 1)[:, :300]
    assert ((back - x).abs() <= wide * (1 + 1e-5)).all()
    assert torch.equal(steps[:, 0], (x[:, :256].abs().amax(1) / 126).clamp(min=1e-30))


def test_unbiased():
    """The mean over many ids of one row is the row, to 4.5 deviations of the mean."""
    count = 20_000
    x = rows(3, 40)[:1].expand(count, 40).contiguous()
    _, steps, back = coded(x, torch.arange(count))
    between = x[0].double().abs() / steps[0] % 1
    deviation = (between * (1 - between) / count).sqrt()
    assert ((back.double() - x).mean(0).abs() / steps[0] <= 4.5 * deviation + 2.0**-16).all()


def test_by_place_alone():
    """The codes of a row follow from its id and the key, wherever it stands."""
    x, ids = rows(50, 40), torch.randperm(50) + 2**40
    codes = coded(x, ids)[0]
    order = torch.randperm(50)
    assert torch.equal(coded(x[order], ids[order])[0], codes[order])
    assert not torch.equal(coded(x, ids, KEY + 1)[0], codes)


def test_numbers_that_are_not_finite():
    x = rows(4, 40)
    x[1, 3], x[2, 5] = torch.inf, torch.nan
    back = coded(x, torch.arange(4))[2]
    assert back[1].isnan().all() and back[2].isnan().all() and back[[0, 3]].isfinite().all()
