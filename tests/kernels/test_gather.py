"""`gather` against an oracle: all widths, types, layouts and options; hubs; independence of the number of threads."""

import kernel_oracle as oracle
import numpy as np
import pytest
import torch

from hpcgnn.kernels import gather

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 2**-8}


def block(num_stored, num_sources, degree, generator, hub=0):
    """(indptr, indices) with about a fifth of the rows empty; row 1 has `hub` edges if that is given."""
    degrees = generator.poisson(degree, num_stored) * (generator.random(num_stored) > 0.2)
    if hub:
        degrees[1] = hub
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    return torch.from_numpy(indptr), torch.from_numpy(generator.integers(0, num_sources, indptr[-1], dtype=np.int32))


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
@pytest.mark.parametrize("width", [1, 6, 40, 47, 150])
def test_every_combination_of_options(kernels, threads, x_dtype, y_dtype, width):
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
        y = matrix(num_rows, width, y_dtype, generator)
        compare(y, matrix(31, width, x_dtype, generator), indptr, indices, **options)


@pytest.mark.parametrize("x_dtype, y_dtype", PAIRS)
@pytest.mark.parametrize("width, accumulate", [(1, False), (47, True), (130, False)])
def test_hub(kernels, x_dtype, y_dtype, width, accumulate):
    """A row of 200,000 edges among small ones, one of just over and one of exactly a chunk; all with scales."""
    generator = np.random.default_rng(3)
    indptr, indices = block(9, 500, 4, generator, hub=200_000)
    long = indptr[-1] + torch.cumsum(torch.tensor([8193, 8192, 0, 8191]), 0)
    indptr = torch.cat([indptr, long])
    extra = int(indptr[-1]) - indices.numel()
    indices = torch.cat([indices, torch.from_numpy(generator.integers(0, 500, extra, dtype=np.int32))])
    acc = torch.float64 if x_dtype == torch.float64 else torch.float32
    y = matrix(13, width, y_dtype, generator)
    # float32 sums of 200,000 terms one by one, as the reference forms them: the error grows with the root of their
    # number
    compare(
        y,
        matrix(500, width, x_dtype, generator),
        indptr,
        indices,
        tolerance=max(TOLERANCE[y_dtype], 2e-5 if acc == torch.float32 else 1e-13),
        row_scale=matrix(1, 13, acc, generator)[0],
        source_scale=matrix(1, 500, acc, generator)[0],
        accumulate=accumulate,
    )


@pytest.mark.parametrize("dtype", NARROW)
def test_the_bits_of_widened_rows(kernels, dtype):
    """All numbers of the type; rows of all units and in the cache, in chunks of a hub too; with and without factors."""
    generator = np.random.default_rng(8)
    everything = torch.arange(1 << 8 * dtype.itemsize).to({1: torch.int8, 2: torch.int16}[dtype.itemsize]).view(dtype)
    for width in (1, 2, 4, 8, 16, 256):
        x = everything.view(-1, width)
        y, rows = torch.empty(x.shape), torch.arange(len(x) + 1)
        gather(y, x, rows, rows[:-1].int())
        numbers = ~x.isnan() & (x != 0)  # a sum of -0 is 0
        assert torch.equal(y[numbers], x.float()[numbers]) and torch.equal(y.isnan(), x.isnan())
    indptr, indices = block(13, 17, 5, generator, hub=8200)
    for width in (1, 2, 3, 5, 11, 16, 24, 47, 127, 128, 300, 4500):
        x = matrix(17, width, torch.float32, generator).mul_(20).to(dtype)
        x = torch.cat([x, x[:, :3]], 1)[:, :width]  # rows some way apart
        scales = [matrix(1, size, torch.float32, generator)[0] for size in (17, indices.numel(), 13)]
        for factors in ({}, dict(zip(("source_scale", "weight", "row_scale"), scales, strict=True))):
            narrow = matrix(13, width, torch.float32, generator)
            wide = narrow.clone()
            gather(narrow, x, indptr, indices, accumulate=bool(factors), **factors)
            gather(wide, x.float(), indptr, indices, accumulate=bool(factors), **factors)
            assert torch.equal(narrow, wide), width


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [5, 40, 64, 200])
def test_same_bits_for_any_number_of_threads(kernels, set_threads, dtype, width):
    generator = np.random.default_rng(5)
    indptr, indices = block(3000, 700, 9, generator, hub=60_000)
    x = matrix(700, width, dtype, generator)
    weight = matrix(1, indices.numel(), torch.float32, generator)[0]
    results = []
    for count in (1, 2, 2, 3):
        set_threads(count)
        y = torch.zeros(3000, width, dtype=dtype)
        gather(y, x, indptr, indices, weight=weight)
        results.append(y)
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_rows_not_listed_and_gaps_between_rows_are_untouched(kernels):
    generator = np.random.default_rng(6)
    storage = torch.full((10, 9), 7.0)
    y = storage[:, 1:8]
    rows = torch.tensor([2, 5], dtype=torch.int32)
    gather(
        y,
        matrix(4, 7, torch.float32, generator),
        torch.tensor([0, 0, 1]),
        torch.tensor([3], dtype=torch.int32),
        rows=rows,
    )
    assert (storage[:, [0, 8]] == 7).all()
    assert (y[[0, 1, 3, 4, 6, 7, 8, 9]] == 7).all()
    assert (y[2] == 0).all() and not (y[5] == 7).any()


def test_slice_of_a_longer_block(kernels):
    """indptr may start above 0, so a range of rows is a slice of it."""
    generator = np.random.default_rng(7)
    indptr, indices = block(50, 20, 5, generator, hub=30_000)
    x = matrix(20, 33, torch.float64, generator)
    whole = torch.zeros(50, 33, dtype=torch.float64)
    gather(whole, x, indptr, indices)
    parts = torch.zeros(50, 33, dtype=torch.float64)
    for first, last in ((0, 1), (1, 2), (2, 30), (30, 30), (30, 50)):
        gather(parts[first:last], x, indptr[first : last + 1], indices)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)


def test_not_a_number_and_infinity_pass_through(kernels):
    for dtype, width in ((torch.bfloat16, 20), (torch.bfloat16, 200), (torch.float32, 9)):
        x = torch.zeros(2, width, dtype=dtype)
        x[0, ::2], x[1, ::3] = float("nan"), float("inf")
        y = torch.zeros(2, width, dtype=dtype)
        gather(y, x, torch.tensor([0, 1, 2]), torch.tensor([0, 1], dtype=torch.int32))
        assert torch.equal(y.isnan(), x.isnan()) and torch.equal(y.isinf(), x.isinf())


GOOD = {
    "y": torch.zeros(2, 3),
    "x": torch.zeros(4, 3),
    "indptr": torch.tensor([0, 1, 2]),
    "indices": torch.tensor([0, 1], dtype=torch.int32),
}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"x": torch.zeros(4, 3, dtype=torch.int16)}, "x: expected torch.float32 or .*, got torch.int16"),
        ({"y": torch.zeros(2, 3, dtype=torch.float64)}, "y: expected torch.float32, got torch.float64"),
        ({"y": torch.zeros(2, 4)}, r"y: expected shape \(2, 3\), got \(2, 4\)"),
        ({"x": torch.zeros(3, 4).t()}, "x: expected rows that are contiguous"),
        ({"x": torch.zeros(1, 3).expand(4, 3)}, "x: expected rows that .* do not overlap"),
        ({"x": torch.zeros(3)}, r"x: expected shape \(sources, width\), got \(3,\)"),
        ({"x": np.zeros((4, 3))}, "x: expected a torch tensor, got ndarray"),
        ({"x": torch.zeros(4, 3, device="meta")}, "x: expected a tensor on the CPU"),
        ({"indptr": torch.tensor([0, 1, 2], dtype=torch.int32)}, "indptr: expected torch.int64"),
        ({"indptr": torch.tensor([0, 1])}, "indptr: expected it for 2 n, got 1; or pass rows"),
        ({"indptr": torch.zeros(0, dtype=torch.int64)}, "indptr: expected shape"),
        ({"indices": torch.tensor([0, 1])}, "indices: expected torch.int32, got torch.int64"),
        ({"indices": torch.zeros(4, dtype=torch.int32)[::2]}, "indices: expected a contiguous tensor"),
        ({"rows": torch.tensor([0], dtype=torch.int32)}, r"rows: expected shape \(2,\), got \(1,\)"),
        ({"weight": torch.zeros(3)}, r"weight: expected shape \(2,\), got \(3,\)"),
        ({"source_scale": torch.zeros(4, dtype=torch.float64)}, "source_scale: expected torch.float32"),
        ({"row_scale": torch.zeros(4)}, r"row_scale: expected shape \(2,\)"),
    ],
)
def test_wrong_arguments(change, message):
    arguments = {**GOOD, **change}
    positional = [arguments.pop(name) for name in ("y", "x", "indptr", "indices")]
    with pytest.raises(ValueError, match=message):
        gather(*positional, **arguments)
