"""Whole jobs over oneCCL, as a user starts them, where its library was built; and what is said where it cannot be."""

import graphs
import pytest

from hpcgnn.comm.transports import oneccl_library
from hpcgnn.errors import ConfigError

from ..forked import start
from .test_torch_jobs import losses, run_of, traffic, without_times

pytestmark = pytest.mark.slow

OVER_ONECCL = ("--comm", "oneccl")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A small graph file with maps for 2 ranks."""
    graph = graphs.with_task(graphs.random_undirected())
    return graphs.write_file(tmp_path_factory.mktemp("oneccl") / "g.h5", graph, graphs.layout(graph, 2), 2)


@pytest.fixture
def library():
    """The library, or a test that is skipped."""
    try:
        return oneccl_library.load()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("way", ["mpi", "ofi"])
def test_a_job_is_that_of_mpi_to_the_bit(good, library, way):
    """A sum of two numbers has one order, so two ranks compute the same."""
    path = run_of(good, f"o-{way}", "-m", "hpcgnn", start=start, options=OVER_ONECCL, CCL_ATL_TRANSPORT=way)
    beside = run_of(good, f"m-{way}", "-m", "hpcgnn", start=start)
    assert losses(path) == losses(beside)
    assert without_times(traffic(path)) == without_times(traffic(beside))


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
    monkeypatch.setattr(oneccl_library, "fingerprint", lambda: "another")
    with pytest.raises(ConfigError, match="built from other sources .*expected another"):
        oneccl_library.load()


@pytest.mark.parametrize(
    "variable, value, words", [("CCL_KVS_IFACE", "nowhere0", "no network"), ("CCL_ATL_TRANSPORT", "tcp", "mpi or ofi")]
)
def test_settings_that_cannot_be(good, library, variable, value, words):
    """oneCCL itself would end with a signal."""
    result = start(2, "-m", "hpcgnn", "train", "--graph", good, *OVER_ONECCL, **{variable: value})
    assert result.code == 2 and "Traceback" not in result.err, result.err
    assert len(result.errors) == 1 and f"{variable}={value}" in result.errors[0] and words in result.errors[0]
