"""One pytest on every rank: `mpiexec -n 4 python -m pytest tests/mpi`, or plain `pytest` for one rank.

All ranks run the same tests in the same order. After each phase of a test the ranks agree on its outcome, so that a
test which fails on one rank fails on all, and rank 0, the only one that prints, shows whose failure it was. Nothing
can hang: a rank that failed waits for the others for a while only, and no test takes longer than LIMIT_SECONDS;
either ends the whole job.
"""

import faulthandler
import os
import pickle
import threading
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import mpi4py
import numpy as np
import pytest

mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from mpi4py import MPI  # noqa: E402

from .transports import TRANSPORTS, has_oneccl  # noqa: E402  (loads torch before any test's time is taken)

LIMIT_SECONDS = float(os.environ.get("HPCGNN_TEST_LIMIT", "90"))
# How long a rank whose test failed waits for ranks that may be stuck in a message from it.
GRACE_SECONDS = min(30.0, LIMIT_SECONDS)
EXIT_FAULT = 13
RANKS, PROCESSOR_TIMES = pytest.StashKey(), pytest.StashKey()


class Ranks:
    """The ranks that run the tests together, on a communicator of their own that no test can disturb."""

    def __init__(self, config):
        if not MPI.Is_initialized():
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
        self.config = config
        self.comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size

    def gather(self, value, patience, stuck=""):
        """The values of all ranks; if they are not there after `patience` seconds, say `stuck` and end the job."""
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        lengths = np.empty(self.size, np.int64)
        self._wait(self.comm.Iallgather(np.array([len(data)], np.int64), lengths), patience, stuck)
        out = np.empty(int(lengths.sum()), np.uint8)
        self._wait(self.comm.Iallgatherv(data, [out, lengths]), patience, stuck)
        return [pickle.loads(part.tobytes()) for part in np.split(out, np.cumsum(lengths)[:-1])]

    def _wait(self, request, patience, stuck):
        end = time.monotonic() + patience
        while not request.Test():
            if time.monotonic() > end:
                self.abort(stuck)
            time.sleep(0.0005)

    def abort(self, text):
        """Say why, past pytest's capture, show every thread's stack, and end all ranks."""
        capture = self.config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.suspend_global_capture(in_=False)
        stream = os.fdopen(os.dup(2), "w")
        print(f"\nrank {self.rank} of {self.size} ends the test run: {text}", file=stream, flush=True)
        faulthandler.dump_traceback(file=stream, all_threads=True)
        # Abort may itself get stuck behind the call that hangs; then a plain exit makes the launcher end the others.
        threading.Thread(target=MPI.COMM_WORLD.Abort, args=(EXIT_FAULT,), daemon=True).start()
        time.sleep(2)
        os._exit(EXIT_FAULT)


def pytest_addoption(parser):
    parser.addoption("--transport", choices=TRANSPORTS, default="polite", help="what the program's messages go through")
    parser.addoption("--by-marks", action="store_true", help="leave out tests whose mark `ranks` has other numbers")
    parser.addoption(
        "--share-cases", action="store_true", help="run each case of a test of three or more at one number of ranks"
    )


@pytest.hookimpl(trylast=True)  # after the terminal reporter is there
def pytest_configure(config):
    ranks = config.stash[RANKS] = Ranks(config)
    if ranks.rank != 0:
        _silence(config)


def _silence(config):
    """Ranks other than 0 write no report and no cache; what they have to say goes into the report of rank 0."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter._tw._file = open(os.devnull, "w")
        config.add_cleanup(reporter._tw._file.close)
    for plugin in ("lfplugin", "nfplugin", "stepwiseplugin"):
        if config.pluginmanager.hasplugin(plugin):
            config.pluginmanager.unregister(name=plugin)


def pytest_unconfigure(config):
    if MPI.Is_initialized() and not MPI.Is_finalized():
        config.stash[RANKS].comm.Free()
        MPI.Finalize()


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session, exitstatus):
    """Add up what the ranks took: where they are forked, no shell knows it."""
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        times, ranks = os.times(), session.config.stash[RANKS]
        session.config.stash[PROCESSOR_TIMES] = ranks.gather(sum(times[:4]), LIMIT_SECONDS, "a rank does not end")
    return (yield)


def pytest_terminal_summary(terminalreporter, config):
    if times := config.stash.get(PROCESSOR_TIMES, None):
        terminalreporter.write_line(f"processor time of all ranks ({len(times)}): {sum(times):.1f} s")


def pytest_report_header(config):
    library = MPI.Get_library_version().split(chr(10))[0].strip()
    return f"MPI: {library}, {config.stash[RANKS].size} ranks, transport {config.getoption('--transport')}"


def pytest_collection_modifyitems(config, items):
    """With --by-marks, leave out tests that are marked for other numbers of ranks.

    With --share-cases, a test still runs at each of its numbers of ranks, but each of its cases at only one of them,
    unless its mark says `every_case`. Tests of one or two cases run as they are.
    """
    ranks, left = config.stash[RANKS].size, set()
    of_test = {item: _marked(item) for item in items}
    if config.getoption("--by-marks"):
        left.update(item for item, (numbers, _) in of_test.items() if ranks not in numbers)
    if config.getoption("--share-cases"):
        cases = {}
        for item, (numbers, every_case) in of_test.items():
            sharing = sorted(set(numbers) & {1, 2, 3, 4})
            if ranks in sharing and len(sharing) > 1 and not every_case:
                cases.setdefault((item.path, item.function.__name__), (sharing, []))[1].append(item)
        for sharing, each in cases.values():
            if len(each) > 2:
                each.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
                turns = _turns(sharing)
                left.update(item for place, item in enumerate(each) if turns[place % len(turns)] != ranks)
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


def _turns(sharing):
    """The numbers of ranks that cases have in turn: four ranks take as long as the others together, so they come once
    in seven.
    """
    return [*sharing, *(ranks for ranks in sharing if ranks < 4)] if len(sharing) > 3 else sharing


def _marked(item):
    """(the numbers of ranks at which a test runs, whether each runs every case)."""
    mark = item.get_closest_marker("ranks")
    return (mark.args, mark.kwargs.get("every_case", False)) if mark else ((1, 2, 3, 4), False)


def pytest_collection_finish(session):
    """All ranks must have found the same tests, or they would wait for each other in different ones."""
    ranks = session.config.stash[RANKS]
    if ranks.size == 1:
        return
    found = ranks.gather(
        ([item.nodeid for item in session.items], session.testsfailed), LIMIT_SECONDS, "collection takes too long"
    )
    if any(other != found[0] for other in found):
        counts = ", ".join(
            f"rank {rank}: {len(items)} tests, {errors} errors" for rank, (items, errors) in enumerate(found)
        )
        pytest.exit(f"the ranks collected different tests ({counts})", returncode=EXIT_FAULT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A limit on the time of each test that holds even where the main thread is inside an MPI call."""
    ranks = item.config.stash[RANKS]
    watch = threading.Timer(LIMIT_SECONDS, ranks.abort, [f"{item.nodeid} took more than {LIMIT_SECONDS:.0f} s"])
    watch.daemon = True
    watch.start()
    try:
        return (yield)
    finally:
        watch.cancel()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Agree on the outcome of this phase of the test: passed or skipped everywhere, or else failed everywhere."""
    report = yield
    ranks = item.config.stash[RANKS]
    if ranks.size == 1 or not item.path.is_relative_to(os.path.dirname(__file__)):
        return report
    failed = report.outcome == "failed"
    stuck = (
        f"{item.nodeid} failed here while other ranks wait\n{report.longreprtext}"
        if failed
        else f"{item.nodeid}: a rank is stuck"
    )
    outcomes = ranks.gather(
        (report.outcome, report.longreprtext if failed else ""), GRACE_SECONDS if failed else 2 * LIMIT_SECONDS, stuck
    )
    if len({outcome for outcome, _ in outcomes}) == 1 and not failed:
        return report
    culprits = [rank for rank, (outcome, _) in enumerate(outcomes) if outcome == "failed"]
    texts = {}
    for rank in culprits:
        texts.setdefault(outcomes[rank][1], []).append(rank)
    parts = [
        f"---------- on rank {', '.join(map(str, where))} of {ranks.size} ----------\n{text}"
        for text, where in texts.items()
    ]
    report.outcome = "failed"
    report.longrepr = "\n".join(parts) or f"the ranks disagree: {[outcome for outcome, _ in outcomes]}"
    return report


@pytest.fixture(scope="session")
def comm(request):
    """The program's communicator over all ranks."""
    if request.config.getoption("--transport") == "oneccl" and not has_oneccl():
        pytest.skip("oneCCL's library was not built (env/build-oneccl.sh)")
    communicator = TRANSPORTS[request.config.getoption("--transport")]()
    yield communicator
    communicator.close()


@pytest.fixture(autouse=True)
def _fresh_ledger(comm):
    comm.ledger.take()


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
