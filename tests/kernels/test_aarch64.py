"""The kernels compiled for aarch64 (NEON), on this machine's processor by emulation: their own tests, the bits of an
installed library, and many widths with any number of threads. Emulation says nothing about speed, nor about the weaker
order of memory of a real processor.
"""

import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import emulated
import numpy as np
import pytest
import test_attention
import test_gather
import torch

from hpcgnn import kernels
from hpcgnn.kernels import library, stream_key

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TESTS = ["test_attention.py", "test_between.py", "test_cover.py", "test_edge_dropout.py", "test_extreme.py"]
TESTS += ["test_gather.py", "test_loss.py", "test_narrow.py", "test_pack_and_check.py", "test_random.py"]
THREADS = [1, 3, 8]
# All remainders of all lengths of a register, and those of rows that a loop of registers covers.
GATHERED_WIDTHS = [*range(1, 81), 96, 97, 127, 128, 129, 150, 199, 240, 255, 256, 257, 270, 299, 300]
EM_AARCH64 = 183
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The library's file, with the program that calls it beside it."""
    if platform.machine() == "aarch64":
        pytest.skip("the processor is of this architecture: the other tests run there as they are")
    if reason := emulated.missing():
        pytest.skip(reason)
    return emulated.build(tmp_path_factory.mktemp("aarch64"))


@pytest.fixture(scope="module")
def serving(built):
    """The emulated kernels, which serve only where a test says so."""
    return emulated.loaded(built)


@pytest.fixture
def on_aarch64(serving):
    before = library.use(serving)
    yield serving
    library.use(before)


def test_what_is_emulated(built):
    """A library of the other architecture; and an access to what nobody has ends the call, with a line that says so."""
    assert struct.unpack_from("<H", built.read_bytes(), 18)[0] == EM_AARCH64
    found = emulated.loaded(built)
    assert found.kernels.supported_paths() == ["baseline"] and found.kernels.own_products_from is None
    x, y, indptr = torch.ones(4, 16), torch.zeros(1, 16), torch.tensor([0, 1])
    options = None, None, None, None, False
    found.kernels.gather(y, x, indptr, torch.tensor([3], dtype=torch.int32), *options)
    assert (y == 1).all() and found.library.calls > 10
    far = torch.tensor([2**31 - 1], dtype=torch.int32), *options
    with pytest.raises(emulated.Failure, match="hg_gather.*an access to memory that the caller does not have"):
        found.kernels.gather(y, x, indptr, *far)


def test_the_kernels_tests(built):
    environment = os.environ | {
        "HPCGNN_KERNELS": "native",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
        emulated.FOLDER: str(built.parent),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-vx",
        "-p",
        "emulated",
        "-k",
        "baseline",
        *(HERE / name for name in TESTS),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    passed = [line for line in done.stdout.splitlines() if " PASSED" in line]
    assert len(passed) > 150 and all(any(name in line for line in passed) for name in TESTS), done.stdout
    calls = int(done.stdout.partition(f" calls under {emulated.EMULATOR}")[0].rpartition("\n")[2])
    assert calls > 1500, "these tests ran on something else"


@pytest.mark.parametrize("x_dtype, y_dtype", test_gather.PAIRS)
def test_gather_of_many_widths(on_aarch64, set_threads, x_dtype, y_dtype):
    """With empty rows, and for some widths a hub that several threads share."""
    generator = np.random.default_rng(1)
    small, large = test_gather.block(13, 500, 3, generator), test_gather.block(13, 500, 3, generator, hub=17_000)
    for width in GATHERED_WIDTHS:
        set_threads(THREADS[width % 3])
        hub = width % 30 == 0
        x = test_gather.matrix(500, width, x_dtype, generator, width + width % 5)
        y = test_gather.matrix(13, width, y_dtype, generator, width + 3)
        tolerance = max(2e-5, test_gather.TOLERANCE[y_dtype]) if hub else None
        test_gather.compare(y, x, *(large if hub else small), tolerance=tolerance, accumulate=width % 2 == 1)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
def test_attention_of_many_widths(on_aarch64, set_threads, dtype, threads):
    set_threads(threads)
    for width in [*range(1, 18), 31, 33, 40, 63, 64, 100, 127, 128, 150, 255, 256, 300]:
        heads, options = 1 + width % 3, width // 3 % 2
        case = test_attention.make_case(heads, width, seed=width, edge=bool(options), rate=0.4 * options)
        test_attention.check(case, dtype, pieces=1 + width % 2, hypersparse=bool(options))


@pytest.fixture
def same(serving, set_threads):
    """same(compute): the tensors that `compute()` returns have the same bits on both architectures, with any number of
    threads.
    """
    here = library.load()
    if here.reason is not None:
        pytest.skip(here.reason)

    def compare(compute, *what):
        set_threads(1)
        wanted = compute()
        before = library.use(serving)
        try:
            for threads in THREADS:
                set_threads(threads)
                for one, other in zip(compute(), wanted, strict=True):
                    one, other = bits_of(one), bits_of(other)
                    assert np.array_equal(one, other), (threads, *what)
        finally:
            library.use(before)

    return compare


def bits_of(tensor):
    """The bytes of a tensor. Every NaN is one: the sign of one that was made differs between processors."""
    if tensor.is_floating_point():
        tensor = torch.where(tensor.isnan(), torch.nan, tensor)
    return tensor.contiguous().view(torch.uint8).numpy()


def numbers(rows, width, dtype, seed=0):
    """Of all sizes, with zeros, infinity and NaN among them."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=random, dtype=torch.float64)
    x *= torch.logspace(-30, 30, rows, dtype=torch.float64)[:, None]
    x[::5] = torch.where(torch.rand(len(x[::5]), width, generator=random) < 0.1, torch.inf, x[::5])
    x[1::5] = torch.where(torch.rand(len(x[1::5]), width, generator=random) < 0.1, -0.0, x[1::5])
    x[2::5] = torch.where(torch.rand(len(x[2::5]), width, generator=random) < 0.1, torch.nan, x[2::5])
    return x.to(dtype)


WIDTHS = [1, 2, 3, 5, 8, 17, 40, 64, 100, 300]
IDS = torch.tensor([0, 1, 2**32 - 1, 2**32, 2**40 + 17, -1, 2**63 - 1, 7] * 20)


def test_random_words_have_the_same_bits(same):
    for columns in WIDTHS:
        same(lambda: (kernels.random_words(stream_key(3, 1), IDS, columns),), columns)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_has_the_same_bits(same, dtype):
    def dropped():
        out = torch.zeros_like(x)
        kernels.dropout(out, x, IDS, 5, 0.3)
        return (out,)

    for width in WIDTHS:
        x = numbers(len(IDS), width, dtype)
        same(dropped, width)


@pytest.mark.parametrize("source, target", [*zip(DTYPES, DTYPES), (torch.float32, torch.bfloat16)])
@pytest.mark.parametrize("scaled", [False, True])
def test_packed_rows_have_the_same_bits(same, source, target, scaled):
    index = torch.randperm(160, generator=torch.Generator().manual_seed(0))[:90].to(torch.int32)
    acc = torch.float64 if source == torch.float64 else torch.float32
    scale = torch.linspace(-2, 3, 160, dtype=acc) if scaled else None

    def packed():
        out = torch.zeros(90, x.shape[1], dtype=target)
        kernels.pack(out, x, index, scale)
        return (out,)

    for width in WIDTHS:
        x = numbers(160, width, source)
        same(packed, width)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_narrow_rows_have_the_same_bits(same, dtype):
    def narrowed():
        out, factors = torch.zeros(x.shape, dtype=torch.int8), torch.zeros(160, 1)
        kernels.narrow(out, factors, x, IDS, 7, None, None)
        wide = torch.zeros_like(x)
        kernels.widen(wide, out, factors)
        return out, factors, wide

    for width in WIDTHS:
        x = numbers(160, width, dtype)
        same(narrowed, width)


def test_largest_and_edge_dropout_have_the_same_bits(same):
    generator = np.random.default_rng(2)
    indptr, indices = test_gather.block(400, 160, 6, generator, hub=500)
    x = torch.from_numpy(generator.integers(-3, 4, (160, 40))).float()

    def largest():
        y, count = torch.full((400, 40), -torch.inf), torch.zeros(400, 40)
        kernels.gather_largest(y, count, x, indptr, indices)
        return y, count

    def dropped():
        kept, left = torch.zeros(401, dtype=torch.int64), torch.zeros_like(indices)
        degree = torch.zeros(400, dtype=torch.float64)
        rule = torch.arange(400) * 2**33, torch.arange(160) * 2**34, stream_key(1), 1 << 31
        served = library.kernels()
        served.drop_edges(indptr, indices, None, None, None, *rule, 2, kept, left, None, None, degree)
        return kept, left, degree

    same(largest)
    same(dropped)
