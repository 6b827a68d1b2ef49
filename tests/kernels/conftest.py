"""Every kernel test runs on the reference and on every vector path that this processor has.

`kernels` is the one way to choose: it puts an implementation in place of the one that serves, for the time of a test. A
test that wants others names them: `pytest.mark.parametrize("kernels", [...], indirect=True)`. A name is "reference" or
a vector path, and with that "torch" or "own": whose products are, whatever this processor would choose.
"""

import pytest
import torch

from hpcgnn.kernels import library
from hpcgnn.kernels.interface import VECTOR_PATHS

COMPILED = library.load()


def names():
    """All implementations that this processor has; of native ones, if the library was compiled."""
    return ["reference"] + (COMPILED.native.supported_paths() if COMPILED.native else [])


def loaded(name):
    """The kernels that serve under this name; skips the test where there are none."""
    if name == "reference":
        return library.Loaded(None, reason="a test")
    path, _, products = name.partition(" ")
    assert path in VECTOR_PATHS
    if path not in names():
        pytest.skip("no compiled kernels" if COMPILED.reason else f"the processor has no {path}")
    found = COMPILED.on(path)
    if products:
        able = products == "own" and path != "baseline" and found.native.library.hg_multiplies()
        found.native.own_products_from = 1 if able else float("inf")
    return found


@pytest.fixture(params=names())
def kernels(request):
    """An implementation serves: the Native of a library, or None for torch's."""
    found = loaded(request.param)
    before = library.use(found)
    yield found.native
    library.use(before)


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def path(request):
    """A vector path serves, for kernels that have no reference."""
    before = library.use(loaded(request.param))
    yield request.param
    library.use(before)


@pytest.fixture
def set_threads():
    """torch.set_num_threads, until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(params=[1, 2])
def threads(request, set_threads):
    set_threads(request.param)
    return request.param
