"""Whole jobs over oneCCL where its library was built, and over ccl with a stand-in; and the messages without them."""

from pathlib import Path

import pytest
from core.comm.test_torch_jobs import BLOCKED, run_of, traffic, without_mpi, without_times
from core.forked import start
from faults import harness
from faults.harness import Injection
from run_files import losses

from hpcgnn.errors import ConfigError
from hpcgnn.extras.oneccl import library as library_of_oneccl
from hpcgnn.extras.oneccl.ccl import load_bindings

pytestmark = pytest.mark.slow

OVER_ONECCL = ("--comm", "oneccl")


@pytest.fixture
def library():
    """The library, or a test that is skipped."""
    try:
        return library_of_oneccl.load()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def over_mpi(good):
    """The run directory of a job over MPI."""
    return run_of(good, "mpi", "-m", "hpcgnn", start=start)


def same(path, over_mpi):
    """Whether losses and bytes are the same: a sum of two numbers has one order, so two ranks compute the same."""
    return losses(path) == losses(over_mpi) and without_times(traffic(path)) == without_times(traffic(over_mpi))


@pytest.mark.parametrize("way", ["mpi", "ofi"])
def test_a_job_is_that_of_mpi_to_the_bit(good, library, over_mpi, way):
    path = run_of(good, f"o-{way}", "-m", "hpcgnn", start=start, options=OVER_ONECCL, CCL_ATL_TRANSPORT=way)
    assert same(path, over_mpi)


def test_ccl_exchanges_by_calls_of_all_ranks(good, over_mpi):
    program = f"import sys; sys.path.append({str(Path(__file__).parent / 'stand_in')!r}); {BLOCKED}"
    assert same(run_of(good, "ccl", "-c", program, options=["--comm", "ccl"], start=without_mpi), over_mpi)


@pytest.mark.parametrize("stage, fault, epoch", [("forward", "stop", 5), ("step", "kill", 3)])
def test_a_rank_that_fails_ends_the_job(good, library, tmp_path, stage, fault, epoch):
    injection = Injection(stage, fault, 1, 2, epoch)
    with harness.nursery() as server:
        outcome = harness.start(injection, good, tmp_path / "run", server, "--partition", "dealt", *OVER_ONECCL)
    assert outcome.happened and not harness.complaint(injection, outcome, tmp_path / "run"), outcome.text


def test_a_backend_that_is_not_there_is_said_once(good):
    result = start(2, "-m", "hpcgnn", "train", "--graph", good, "--comm", "ccl", without_mpi=True)
    assert result.code == 2 and "Traceback" not in result.err, result.err
    assert len(result.errors) == 1 and "oneccl_bindings_for_pytorch" in result.errors[0]


def test_bindings_of_another_torch(tmp_path, monkeypatch):
    (tmp_path / "oneccl_bindings_for_pytorch.py").write_text("raise OSError('undefined symbol: c10d')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"OSError: undefined symbol: c10d.*torch 2\.8"):
        load_bindings()


def test_the_library_that_is_linked(library):
    assert library.hpo_version().decode().startswith("2022.1")


def test_doctor_says_what_carries_messages(library):
    result = start(2, "-m", "hpcgnn", "doctor", *OVER_ONECCL)
    assert result.code == 0 and "oneCCL 2022.1" in result.out and "passed 1 MiB around" in result.out, result.err


def test_what_needs_messages_between_two_ranks_is_refused(good):
    result = start(2, "-m", "hpcgnn", "train", "--graph", good, *OVER_ONECCL, "--trace")
    assert result.code == 2 and "which --comm oneccl cannot" in result.errors[0], result.err


@pytest.mark.parametrize("contents, words", [(None, "no library"), ("not a library", "cannot be used")])
def test_a_library_that_is_not_there_is_said_once(good, contents, words, tmp_path):
    path = tmp_path / "lib.so"
    if contents is not None:
        path.write_text(contents)
    result = start(2, "-m", "hpcgnn", "train", "--graph", good, *OVER_ONECCL, HPCGNN_ONECCL=str(path))
    assert result.code == 2 and "Traceback" not in result.err, result.err
    assert len(result.errors) == 1 and words in result.errors[0] and "env/build-oneccl.sh" in result.errors[0]


def test_a_library_of_other_sources(library, monkeypatch):
    monkeypatch.setattr(library_of_oneccl, "fingerprint", lambda: "another")
    with pytest.raises(ConfigError, match="built from other sources .*expected another"):
        library_of_oneccl.load()


@pytest.mark.parametrize(
    "variable, value, words", [("CCL_KVS_IFACE", "nowhere0", "no network"), ("CCL_ATL_TRANSPORT", "tcp", "mpi or ofi")]
)
def test_settings_that_cannot_be(good, library, variable, value, words):
    """oneCCL itself would end with a signal."""
    result = start(2, "-m", "hpcgnn", "train", "--graph", good, *OVER_ONECCL, **{variable: value})
    assert result.code == 2 and "Traceback" not in result.err, result.err
    assert len(result.errors) == 1 and f"{variable}={value}" in result.errors[0] and words in result.errors[0]
