"""Every kernel test runs on the reference and on every vector path that this processor has."""

import importlib

import pytest
import torch

from hpcgnn.kernels import library, native, reference

FRONT_DOORS = [
    importlib.import_module(f"hpcgnn.kernels.{name}")
    for name in ("activation", "aggregation", "extreme", "loss", "masking", "randomness")
]


def implementations() -> dict:
    """Name to implementation; the native ones are absent where the library was not compiled."""
    found = {"reference": reference}
    loaded = library.load()
    if loaded.reason is None:
        for path in loaded.kernels.supported_paths():
            found[path] = native.Native(loaded.kernels._library, path)
    return found


@pytest.fixture(params=list(implementations()))
def kernels(request, monkeypatch):
    """One implementation, to which the public functions are bound for the test."""
    implementation = implementations()[request.param]
    for module in FRONT_DOORS:
        monkeypatch.setattr(module, "kernels", lambda: implementation)
    return implementation


@pytest.fixture
def own_products(monkeypatch):
    """(path, rounded) to the compiled kernels with products of their own, also on a processor that would not choose
    them.
    """
    loaded = library.load()

    def of(path, rounded=False):
        if loaded.reason is not None or path not in loaded.kernels.supported_paths():
            pytest.skip(f"no compiled kernels, or no {path}")
        if rounded and not loaded.kernels._library.hg_multiplies() & 2:
            pytest.skip("no instructions for products of bfloat16, or a compiler that does not know them")
        found = native.Native(loaded.kernels._library, path)
        found.multiplies, found.rounds = True, rounded
        if rounded:
            monkeypatch.setattr(native, "_may_round", lambda: True)
        return found

    return of


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
