"""Tests of several ranks. A test asks for `comm`, a communicator, and runs on all ranks at once.

Ranks are threads of one process by default (thread_ranks.py): at 1 to 4 of them, or at the numbers of the mark `ranks`.
Over MPI and other transports they are processes: `mpiexec -n 3 python -m pytest tests/mpi --transport polite`
(mpi_ranks.py). Tests with the mark `processes` need these.
"""

import re
from pathlib import Path

import cover
import mpi4py
import pytest

mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from hpcgnn.memory.resident import status  # noqa: E402

from . import small  # noqa: E402
from .edge_rows import written_with_rows  # noqa: E402
from .runs import session_of  # noqa: E402
from .thread_ranks import ThreadRanks  # noqa: E402
from .training import make_graphs  # noqa: E402

RANKS = pytest.StashKey()


@pytest.hookimpl(trylast=True)  # after the terminal reporter is there
def pytest_configure(config):
    if config.getoption("--transport") == "threads":
        ranks = ThreadRanks()
    else:
        from .mpi_ranks import MpiRanks

        ranks = MpiRanks(config)
    config.stash[RANKS] = config.pluginmanager.register(ranks) and ranks


def pytest_collection_modifyitems(config, items):
    """Leave out tests of processes where ranks are threads, and tests that are marked for other numbers of ranks.

    Without --all, also leave out cases that no value of a parameter needs, a number of ranks being one.
    """
    ranks, left, tests = config.stash[RANKS], set(), {}
    for item in items:
        if "comm" not in getattr(item, "fixturenames", ()):
            continue
        mark = item.get_closest_marker("ranks")
        numbers, here = mark.args if mark else (1, 2, 3, 4), ranks.number(item)
        if here not in numbers or isinstance(ranks, ThreadRanks) and item.get_closest_marker("processes"):
            left.add(item)
        else:
            # Processes are started at 2 and 3 ranks (tests/lanes.py): no case of theirs waits for other numbers.
            sharing = {2, 3} & set(numbers) if item.get_closest_marker("processes") else set()
            case = re.sub(r"-?\b\d+ranks\b", "", item.nodeid)
            tests.setdefault(cover.group(item), (sharing, {}))[1][case, here] = item
    if not config.getoption("--all"):
        for sharing, of_test in tests.values():
            cases = {}
            for (case, mine), item in of_test.items():
                values = {a: value for a, value in cover.axes(item).items() if not re.fullmatch(r"\d+ranks", value)}
                # Also of other launches, which choose as this one does.
                cases |= {(case, here): values | {cover.RANKS: here} for here in {mine} | sharing}
            first = next(iter(of_test.values()))
            # What threads have run needs one case of processes.
            smoke = first.get_closest_marker("smoke") and not isinstance(ranks, ThreadRanks)
            strength = 0 if smoke else cover.strength(first)
            chosen = cover.cover(cases, strength, cost=lambda each: each[1] not in (2, 3))
            left.update(item for each, item in of_test.items() if each not in chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def comm(request):
    """The program's communicator over all ranks."""
    ranks = request.config.stash[RANKS]
    if isinstance(ranks, ThreadRanks):
        yield ranks.communicators(request.param)
        return
    from .transports import TRANSPORTS

    communicator = TRANSPORTS[request.config.getoption("--transport")]()
    yield communicator
    communicator.close()


@pytest.fixture(autouse=True)
def _fresh_ledger(request):
    """Nothing is left in the ledger of a test, neither for it nor for the fixtures of the next."""
    found = request.getfixturevalue("comm") if "comm" in request.fixturenames else []
    communicators = found if isinstance(found, list) else [found]
    for each in communicators:
        each.ledger.take()
    yield
    for each in communicators:
        each.ledger.take()


@pytest.fixture(scope="session")
def session_path(comm, tmp_path_factory):
    """A folder that all ranks see, for files that several tests use."""
    return _shared(comm, tmp_path_factory, "session")


@pytest.fixture
def shared_path(comm, tmp_path_factory):
    """A folder that all ranks see, for one test."""
    return _shared(comm, tmp_path_factory, "shared")


def _shared(comm, factory, name):
    return Path(comm.broadcast_object(str(factory.mktemp(name)) if comm.rank == 0 else None))


@pytest.fixture(scope="session", autouse=True)
def no_pictures():
    """Drawing the curves of a run takes longer than training here, and so does counting the pages of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpcgnn.engine.summary.draw_curves", lambda run_dir: None)
        patch.setattr("hpcgnn.plugins.memory_use.common_bytes", lambda: status("RssFile:"))
        yield


@pytest.fixture
def job_session(comm):
    return session_of(comm)


@pytest.fixture(scope="session")
def paths(comm, session_path):
    """{name: file} of generated graphs of 300 nodes; see make_graphs."""
    return make_graphs(comm, session_path)


@pytest.fixture(scope="module", params=small.GRAPHS)
def stored(request, comm, session_path):
    """(graph, layout, file) of every small graph."""
    return small.stored(comm, session_path, request.param)


@pytest.fixture(scope="session")
def edge_files(comm, session_path):
    """{name: file} of small graphs whose edges have rows and types."""
    return written_with_rows(comm, session_path)


@pytest.fixture(scope="session")
def graph(paths):
    """The undirected one."""
    return paths["undirected"]
