"""One pytest on every rank: `mpiexec -n 3 python -m pytest tests/mpi --transport polite`.

All ranks run the same tests in the same order. After each phase of a test the ranks agree on its outcome, so that a
failure on one rank fails on all. Rank 0, the only one that prints, shows whose failure it was. Nothing can hang: a rank
that failed waits for the others for a while only, and no test takes longer than LIMIT_SECONDS. Either limit ends the
whole job.
"""

import faulthandler
import os
import pickle
import threading
import time

import numpy as np
import pytest
from mpi4py import MPI

LIMIT_SECONDS = float(os.environ.get("HPCGNN_TEST_LIMIT", "90"))
# How long a rank whose test failed waits for ranks that may be stuck in a message from it.
GRACE_SECONDS = min(30.0, LIMIT_SECONDS)
EXIT_FAULT = 13


class MpiRanks:
    """A plugin of pytest: the ranks of this launch run the tests together, on a communicator of their own that no test
    can disturb.
    """

    def __init__(self, config):
        if not MPI.Is_initialized():
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
        self.config = config
        self.comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        if self.rank != 0:
            self._silence()

    def _silence(self):
        """Ranks other than 0 write no report and no cache; their messages go into the report of rank 0."""
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter._tw._file = open(os.devnull, "w")
            self.config.add_cleanup(reporter._tw._file.close)
        for plugin in ("lfplugin", "nfplugin", "stepwiseplugin"):
            if self.config.pluginmanager.hasplugin(plugin):
                self.config.pluginmanager.unregister(name=plugin)

    def number(self, item):
        """The number of ranks of a test: this launch's."""
        return self.size

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

    def pytest_unconfigure(self):
        if MPI.Is_initialized() and not MPI.Is_finalized():
            self.comm.Free()
            MPI.Finalize()

    def pytest_collection_finish(self, session):
        """All ranks must have found the same tests, or they would wait for each other in different ones."""
        if self.size == 1:
            return
        found = self.gather(
            ([item.nodeid for item in session.items], session.testsfailed), LIMIT_SECONDS, "collection takes too long"
        )
        if any(other != found[0] for other in found):
            counts = ", ".join(
                f"rank {rank}: {len(items)} tests, {errors} errors" for rank, (items, errors) in enumerate(found)
            )
            pytest.exit(f"the ranks collected different tests ({counts})", returncode=EXIT_FAULT)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """A limit on the time of each test that holds even where the main thread is inside an MPI call."""
        watch = threading.Timer(LIMIT_SECONDS, self.abort, [f"{item.nodeid} took more than {LIMIT_SECONDS:.0f} s"])
        watch.daemon = True
        watch.start()
        try:
            return (yield)
        finally:
            watch.cancel()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Agree on the outcome of this phase of the test: passed or skipped everywhere, or else failed everywhere."""
        report = yield
        if self.size == 1 or not item.path.is_relative_to(os.path.dirname(__file__)):
            return report
        failed = report.outcome == "failed"
        text = report.longreprtext if failed else ""
        stuck = f"failed here while other ranks wait\n{text}" if failed else "a rank is stuck"
        patience = GRACE_SECONDS if failed else 2 * LIMIT_SECONDS
        outcomes = self.gather((report.outcome, text), patience, f"{item.nodeid}: {stuck}")
        if len({outcome for outcome, _ in outcomes}) == 1 and not failed:
            return report
        parts = [
            f"---------- on rank {rank} of {self.size} ----------\n{text}"
            for rank, (outcome, text) in enumerate(outcomes)
            if outcome == "failed"
        ]
        report.outcome = "failed"
        report.longrepr = "\n".join(parts) or f"the ranks disagree: {[outcome for outcome, _ in outcomes]}"
        return report
