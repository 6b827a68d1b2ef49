"""Tests of several ranks. A test asks for `comm`, a communicator, and runs on all ranks at once.

Ranks are threads of one process by default (thread_ranks.py): at 1 to 4 of them, or at those that the mark `ranks` has.
Over MPI and other transports they are processes: `mpiexec -n 3 python -m pytest tests/mpi --transport polite`
(mpi_ranks.py). Tests with the mark `processes` need these.
"""

import zlib
from pathlib import Path
from types import SimpleNamespace

import mpi4py
import pytest

mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from .nodes import NODES, of_ranks  # noqa: E402
from .thread_ranks import ThreadRanks  # noqa: E402

RANKS = pytest.StashKey()
#: Of a test with more cases than these, half of them run without --all.
MOST_CASES = 8


@pytest.hookimpl(trylast=True)  # after the terminal reporter is there
def pytest_configure(config):
    if config.getoption("--transport") == "threads":
        ranks = ThreadRanks()
    else:
        from .mpi_ranks import MpiRanks

        ranks = MpiRanks(config)
    config.stash[RANKS] = config.pluginmanager.register(ranks) and ranks


def pytest_collection_modifyitems(config, items):
    """Leave out what has no place here: tests of processes where ranks are threads, tests that are marked for other
    numbers of ranks; and, without --all, all but one number of ranks for each case of a test of three or more, and half
    of very many cases.
    """
    ranks, left = config.stash[RANKS], set()
    cases, layouts = {}, set()
    for item in items:
        if "comm" not in getattr(item, "fixturenames", ()):
            continue
        mark = item.get_closest_marker("ranks")
        numbers, here = mark.args if mark else (1, 2, 3, 4), ranks.number(item)
        if _same_layout(item, here, layouts) or here not in numbers or not ranks.can_run(item):
            left.add(item)
        elif len(numbers) > 1 and not (mark and mark.kwargs.get("every_case")):
            # Processes are started at 2 and 3 ranks (tests/lanes.py): no case of theirs waits for other numbers.
            launched = {2, 3} if item.get_closest_marker("processes") else set()
            sharing = sorted(launched & set(numbers) or numbers)
            case = item.nodeid.replace(f"{here}ranks", "")
            cases.setdefault((item.path, item.function.__name__), (sharing, {}))[1].setdefault(case, []).append(item)
    if not config.getoption("--all"):
        for sharing, of_test in cases.values():
            if len(of_test) > 2:
                turns = _turns(sharing)
                for place, case in enumerate(sorted(of_test, key=lambda each: zlib.crc32(each.encode()))):
                    chosen = turns[place % len(turns)] if place < max(MOST_CASES, len(of_test) / 2) else None
                    left.update(item for item in of_test[case] if ranks.number(item) != chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


def _same_layout(item, ranks, layouts):
    """Whether an earlier case has the same ranks on the same nodes, by another name."""
    params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    for key, name in params.items():
        if isinstance(name, str) and name in NODES:
            case = (item.path, item.function.__name__, repr(params | {key: of_ranks(name, ranks)}))
            same = case in layouts
            layouts.add(case)
            return same
    return False


def _turns(sharing):
    """The numbers of ranks that cases have in turn: four ranks take as long as the others together, so they come once
    in seven.
    """
    return [*sharing, *(ranks for ranks in sharing if ranks < 4)] if len(sharing) > 3 else sharing


@pytest.fixture(scope="session")
def comm(request):
    """The program's communicator over all ranks."""
    ranks = request.config.stash[RANKS]
    if isinstance(ranks, ThreadRanks):
        yield ranks.communicators(request.param)
        return
    from .transports import TRANSPORTS, has_oneccl

    name = request.config.getoption("--transport")
    if name == "oneccl" and not has_oneccl():
        pytest.skip("oneCCL's library was not built (env/build-oneccl.sh)")
    communicator = TRANSPORTS[name]()
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


@pytest.fixture(scope="module")
def no_pictures():
    """Drawing the curves of a run takes longer than training here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpcgnn.engine.summary.draw_curves", lambda run_dir: None)
        yield


@pytest.fixture
def job_session(comm):
    """A stand-in for the session that the launcher makes."""
    return SimpleNamespace(comm=comm, threads=1, ranks_on_node=comm.size, node=0, shares_cores=True, mpi_bytes=0)
