"""Loading: which kernels serve, the choices that the environment can force, and that one OpenMP runtime is in the
process.
"""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import h5py.h5
import pytest
import torch

from hpcgnn import kernels
from hpcgnn.errors import HpcgnnError
from hpcgnn.kernels import library
from hpcgnn.kernels.sources import cached, contraction, left_out

COMPILED = library.load().reason is None
needs_library = pytest.mark.skipif(not COMPILED, reason="the kernel library is not compiled")

SCRIPT = """
import json
import hpcgnn.kernels
by_import = "_native" in open("/proc/self/maps").read()
hpcgnn.kernels.library.load()
print(json.dumps({**hpcgnn.kernels.describe(), "by_import": by_import}))
"""


@needs_library
def test_native_with_one_openmp_runtime():
    """In a process of its own, without a warning."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HPCGNN_")}
    environment = {**inherited, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["native"] and found["reason"] is None
    assert found["vector_path"] == found["vector_paths"][-1]
    assert found["products"] in ("own", "torch")
    assert not found["by_import"], "importing the package must load nothing"
    assert len(found["openmp_runtimes"]) == 1, found["openmp_runtimes"]


@pytest.fixture
def described(monkeypatch):
    """described() gathers twice, as a process that has loaded no kernels; (which serve, the warnings)."""

    def run():
        monkeypatch.setattr(library.state, "loaded", None)
        y, indptr, indices = torch.zeros(1, 3), torch.tensor([0, 2]), torch.tensor([0, 1], dtype=torch.int32)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                kernels.gather(y, torch.ones(2, 3), indptr, indices)
        assert y.tolist() == [[2, 2, 2]]
        return kernels.describe(), [str(each.message) for each in caught if each.category is RuntimeWarning]

    return run


def test_reference_on_request_is_silent(described, monkeypatch):
    monkeypatch.setenv("HPCGNN_KERNELS", "reference")
    found, said = described()
    assert not found["native"] and found["reason"] == "HPCGNN_KERNELS=reference" and said == []


def test_missing_library_warns_once_and_works(described, monkeypatch):
    monkeypatch.delenv("HPCGNN_KERNELS", raising=False)
    monkeypatch.setattr(library, "FILE", library.FILE.with_suffix(".nowhere"))
    found, said = described()
    assert not found["native"] and "the compiled kernels are missing: no _native" in found["reason"]
    assert len(said) == 1 and "pure-torch kernels serve" in said[0]


REMEDY = "build it again with `pip install -e .`"


def refused(file=None):
    """The one line with the reason why a library is not used; the same whether it is demanded or not."""
    said = set()
    for wanted in ("auto", "native"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HPCGNN_KERNELS", wanted)
            with pytest.raises(HpcgnnError) as error:
                library.choose(file)
        said.add(str(error.value))
    (line,) = said
    assert REMEDY in line and "\n" not in line
    return line


@needs_library
def test_a_library_of_other_sources_is_refused(monkeypatch):
    monkeypatch.setattr(library, "fingerprint", lambda: "0123456789abcdef")
    line = refused()
    assert "was built from other sources (" in line and "than lie beside it (0123456789abcdef)" in line
    monkeypatch.setenv("HPCGNN_KERNELS", "reference")
    assert library.choose().reason == "HPCGNN_KERNELS=reference", "which does without it"


def test_a_library_that_does_not_say_what_it_is_made_of_is_refused():
    other = Path(h5py.h5.__file__)
    assert f"{other} is of an earlier version: it does not say what it was built from" in refused(other)


@needs_library
def test_vector_path_can_be_forced(monkeypatch):
    monkeypatch.setenv("HPCGNN_VECTOR", "baseline")
    assert library.choose().vector_path == "baseline"


@pytest.mark.parametrize(
    "variable, value, message",
    [
        ("KERNELS", "native", "HPCGNN_KERNELS=native, but the compiled kernels are missing"),
        ("KERNELS", "fast", "must be auto, native or reference, not 'fast'"),
        pytest.param("VECTOR", "avx1024", "must be one of baseline.* not 'avx1024'", marks=needs_library),
    ],
)
def test_choices_that_cannot_be(monkeypatch, variable, value, message):
    monkeypatch.setenv(f"HPCGNN_{variable}", value)
    with pytest.raises((ImportError, HpcgnnError), match=message):
        library.choose(Path("nowhere.so") if value == "native" else None)


@pytest.fixture
def compiler(tmp_path):
    """A function of macros, or other words, that makes a compiler which prints them."""

    def made(words):
        file = tmp_path / "compiler"
        file.write_text("#!/bin/sh\n" + "".join(f"echo '{each}'\n" for each in words))
        file.chmod(0o755)
        return [str(file)]

    return made


@pytest.mark.parametrize(
    ("macros", "flag"),
    [
        (["__GNUC__ 12"], ["--param=avoid-fma-max-bits=0"]),
        (["__GNUC__ 14"], ["-ffp-contract=on"]),
        (["__GNUC__ 4", "__clang__ 1"], ["-ffp-contract=on"]),
        ([], []),
    ],
)
def test_every_compiler_is_asked_to_round_alike(compiler, macros, flag):
    assert contraction([*compiler(f"#define {each}" for each in macros), "-O3"]) == flag
    assert contraction(["/nowhere"]) == []


AVX2 = ["__AVX2__ 1", "__FMA__ 1", "__F16C__ 1"]
AVX512 = [f"__AVX512{part}__ 1" for part in ("F", "BW", "DQ", "VL")]


@pytest.mark.parametrize(
    ("macros", "runnable"),
    [
        ([], ["BASELINE"]),
        (AVX2, ["AVX2", "BASELINE"]),
        (AVX2 + AVX512, ["AVX512", "AVX2", "BASELINE"]),
        (AVX2 + AVX512[:2], ["AVX2", "BASELINE"]),
    ],
)
def test_paths_of_this_processor_are_compiled_alone(compiler, macros, runnable):
    command = compiler(f"#define {each}" for each in macros)
    for paths, wanted in (("all", ["AVX512", "AVX2", "BASELINE"]), ("runnable", runnable), ("native", runnable[:1])):
        without = {name for name, _ in left_out(command, paths)}
        assert without == {f"HG_WITHOUT_{name}" for name in {"BASELINE", "AVX2", "AVX512"} - set(wanted)}


def test_a_library_is_compiled_once_for_compiler_and_flags(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("HPCGNN_BUILD_CACHE", str(tmp_path))
    asked = ("1", [], ["-O3"]), ("1", [], ["-O3"]), ("2", [], ["-O3"]), ("1", [("A", "1")], [])
    found = [cached(compiler([version]), macros, flags) for version, macros, flags in asked]
    assert found[0] == found[1] and len(set(found)) == 3 and {path.parent for path in found} == {tmp_path}
    assert cached(["/nowhere"], [], []) is None
