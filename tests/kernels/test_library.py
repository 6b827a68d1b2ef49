"""Loading: which kernels serve, what the environment can force, and that one OpenMP runtime is in the process."""

import json
import os
import subprocess
import sys

import pytest

from hpcgnn.kernels import describe, library

COMPILED = library.load().reason is None
needs_library = pytest.mark.skipif(not COMPILED, reason="the kernel library is not compiled")

SCRIPT = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import hpcgnn.kernels
    loaded_by_import = "_native" in open("/proc/self/maps").read()
    {before}
    import torch
    y = torch.zeros(1, 3)
    for _ in range(2):
        hpcgnn.kernels.gather(y, torch.ones(2, 3), torch.tensor([0, 2]), torch.tensor([0, 1], dtype=torch.int32))
    assert y.tolist() == [[2, 2, 2]]
print(json.dumps({{**hpcgnn.kernels.describe(), "by_import": loaded_by_import,
                  "warnings": [str(w.message) for w in caught if w.category is RuntimeWarning]}}))
"""


def run(before="", **environment):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HPCGNN_")}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)],
        env={**inherited, **environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def described(*args, **environment):
    finished = run(*args, **environment)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@needs_library
def test_native_with_one_openmp_runtime():
    found = described()
    assert found["native"] and found["reason"] is None and found["warnings"] == []
    assert found["vector_path"] == found["vector_paths"][-1]
    assert (found["products"], found["rounded_products"]) in (("own", "own"), ("own", "none"), ("torch", "torch"))
    assert not found["by_import"], "importing the package must load nothing"
    assert len(found["openmp_runtimes"]) == 1, found["openmp_runtimes"]


def test_reference_on_request_is_silent():
    found = described(HPCGNN_KERNELS="reference")
    assert not found["native"] and found["reason"] == "HPCGNN_KERNELS=reference" and found["warnings"] == []


MISSING = "from hpcgnn.kernels import library; library.importlib.machinery.EXTENSION_SUFFIXES = ['.nowhere']"


def test_missing_library_warns_once_and_works():
    found = described(MISSING)
    assert not found["native"] and "no _native*.so" in found["reason"]
    assert len(found["warnings"]) == 1 and "pure-torch kernels serve" in found["warnings"][0]


def test_missing_library_is_an_error_if_native_is_demanded(monkeypatch):
    monkeypatch.setenv("HPCGNN_KERNELS", "native")
    monkeypatch.setattr(library.importlib.machinery, "EXTENSION_SUFFIXES", [".nowhere"])
    with pytest.raises(ImportError, match="HPCGNN_KERNELS=native, but the compiled kernels are missing"):
        library.load.__wrapped__()


@needs_library
def test_vector_path_can_be_forced(monkeypatch):
    monkeypatch.setenv("HPCGNN_KERNELS", "native")
    monkeypatch.setenv("HPCGNN_VECTOR", "baseline")
    assert library.load.__wrapped__().vector_path == "baseline"
    monkeypatch.setenv("HPCGNN_VECTOR", "avx1024")
    with pytest.raises(ValueError, match="HPCGNN_VECTOR must be one of baseline.* not 'avx1024'"):
        library.load.__wrapped__()


def test_wrong_choice_of_kernels(monkeypatch):
    monkeypatch.setenv("HPCGNN_KERNELS", "fast")
    with pytest.raises(ValueError, match="must be auto, native or reference, not 'fast'"):
        library.load.__wrapped__()


def test_description_is_plain():
    assert json.loads(json.dumps(describe())) == describe()
