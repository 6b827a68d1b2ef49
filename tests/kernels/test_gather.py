"""`gather` against an oracle: all widths, types, layouts and options; hubs; independence of the number of threads."""

import kernel_oracle as oracle
import numpy as np
import pytest
import torch
from kernel_oracle import block

from hpcgnn.kernels import gather, gather_largest

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 2**-8}


def matrix(rows, width, dtype, generator, stride=None):
    """Random (rows, width) with any distance between rows; the gaps hold NaN, which must never be read into a
    result."""
    storage = torch.full((rows, stride or width), float("nan"), dtype=dtype)
    storage[:, :width] = torch.from_numpy(generator.standard_normal((rows, width))).to(dtype)
    return storage[:, :width]


def array(tensor):
    return None if tensor is None else tensor.to(torch.float64).numpy()


def compare(y, x, indptr, indices, tolerance=None, **options):
    """Runs gather and holds the result against the oracle, to rounding of the sum of absolute terms."""
    rows = options.get("rows")
    arguments = [None if rows is None else rows.numpy()]
    arguments += [array(options.get(name)) for name in ("weight", "source_scale", "row_scale")]
    accumulate = options.get("accumulate", False)
    expected = oracle.gather(array(y), array(x), indptr.numpy(), indices.numpy(), *arguments, accumulate)
    magnitudes = [arguments[0]] + [None if a is None else abs(a) for a in arguments[1:]]
    size = oracle.gather(abs(array(y)), abs(array(x)), indptr.numpy(), indices.numpy(), *magnitudes, accumulate)
    gather(y, x, indptr, indices, **options)
    error = np.abs(array(y) - expected)
    limit = (tolerance or TOLERANCE[y.dtype]) * size + 1e-30
    assert (error <= limit).all(), f"worst {np.nanmax(error / limit)} times the limit"


PAIRS = [
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.float32),
]
NARROW = [torch.float16, torch.int8, torch.bfloat16]


@pytest.mark.parametrize("x_dtype, y_dtype", PAIRS)
def test_every_width(kernels, x_dtype, y_dtype):
    generator = np.random.default_rng(1)
    indptr, indices = block(13, 17, 3, generator)
    for width in [*range(1, 71), 96, 127, 128, 129, 256, 300, 1024, 1900, 2048, 2100, 4500]:
        stride = width + int(generator.integers(0, 5))
        x = matrix(17, width, x_dtype, generator, stride)
        for accumulate in (False, True):
            y = matrix(13, width, y_dtype, generator, width + 3)
            compare(y, x, indptr, indices, accumulate=accumulate)


@pytest.mark.parametrize("x_dtype, y_dtype", PAIRS)
def test_every_combination_of_options(kernels, x_dtype, y_dtype, width=47):
    generator = np.random.default_rng(2)
    indptr, indices = block(40, 31, 6, generator)
    acc = torch.float64 if x_dtype == torch.float64 else torch.float32
    optional = {
        "rows": torch.from_numpy(np.sort(generator.choice(60, 40, replace=False)).astype(np.int32)),
        "weight": matrix(1, indices.numel(), acc, generator)[0],
        "source_scale": matrix(1, 31, acc, generator)[0],
        "row_scale": matrix(1, 60, acc, generator)[0],
        "accumulate": True,
    }
    for chosen in range(2 ** len(optional)):
        options = {name: value for bit, (name, value) in enumerate(optional.items()) if chosen >> bit & 1}
        num_rows = 60 if "rows" in options else 40
        if "row_scale" in options:
            options["row_scale"] = options["row_scale"][:num_rows]
        y = matrix(num_rows, width, y_dtype, generator)  # rows that are not listed stay
        compare(y, matrix(31, width, x_dtype, generator), indptr, indices, **options)


@pytest.mark.parametrize("dtype", NARROW)
def test_the_bits_of_widened_rows(kernels, dtype):
    """All numbers of the type, in rows of all units."""
    everything = torch.arange(1 << 8 * dtype.itemsize).to({1: torch.int8, 2: torch.int16}[dtype.itemsize]).view(dtype)
    for width in (1, 2, 4, 8, 16, 256):
        x = everything.view(-1, width)
        y, rows = torch.empty(x.shape), torch.arange(len(x) + 1)
        gather(y, x, rows, rows[:-1].int())
        numbers = ~x.isnan() & (x != 0)  # a sum of -0 is 0
        assert torch.equal(y[numbers], x.float()[numbers]) and torch.equal(y.isnan(), x.isnan())


def test_many_hubs_in_several_waves(kernels):
    generator = np.random.default_rng(4)
    indptr = torch.arange(151) * 16_400
    indices = torch.from_numpy(generator.integers(0, 50, int(indptr[-1]), dtype=np.int32))
    compare(
        matrix(150, 3, torch.float64, generator),
        matrix(50, 3, torch.float64, generator),
        indptr,
        indices,
        tolerance=1e-12,
    )


def test_the_largest_is_not_a_number_where_one_is_not(kernels):
    x = torch.tensor([[1.0], [torch.nan], [2.0]])
    y, count = torch.full((1, 1), -torch.inf), torch.zeros(1, 1)
    gather_largest(y, count, x, torch.tensor([0, 3]), torch.arange(3, dtype=torch.int32))
    assert y.isnan().all()
