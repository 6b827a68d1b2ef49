"""Every kernel test runs on the reference and on every vector path of this processor, unless it asks otherwise."""

import importlib

import pytest
import torch

from hpcgnn.kernels import library, native, reference

FRONT_DOORS = [importlib.import_module(f"hpcgnn.kernels.{name}") for name in ("aggregation", "masking", "randomness")]


def implementations() -> dict:
    """Name to implementation; the native ones are absent where the library was not compiled."""
    found = {"reference": reference}
    loaded = library.load()
    if loaded.reason is None:
        for path in loaded.kernels.supported_paths():
            found[path] = native.Native(loaded.kernels._library, path)
    return found


@pytest.fixture(params=["reference", *native.VECTOR_PATHS])
def kernels(request, monkeypatch):
    """The public functions, bound to one implementation."""
    implementation = implementations().get(request.param)
    if implementation is None:
        pytest.skip(f"no {request.param} kernels here")
    for module in FRONT_DOORS:
        monkeypatch.setattr(module, "kernels", lambda: implementation)
    return implementation


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
