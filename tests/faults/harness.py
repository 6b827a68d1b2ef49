"""Start a job with a fault in it, judge how it ended, and whether the files it leaves can be used.

Rules whatever goes wrong: the job ends in time on all ranks, and claims no success that it has not had. Every
checkpoint under its final name reads. No process is left, and the same command with --resume continues.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from core.launching import ROOT, clean_environment, command_and_environment

from hpcgnn.engine.checkpoint import Checkpoint, checkpoints
from hpcgnn.errors import CheckpointError

QUIET = {"OMP_WAIT_POLICY": "passive", "MPLBACKEND": "Agg"}
HERE = Path(__file__).parent
WATCHDOG = int(os.environ.get("FAULT_WATCHDOG", "6"))
# What is asked: 30 s after a death, the watchdog's limit and as much after a standstill; loading torch takes its time
# too, and everything does on a machine that is busy with other things.
LIMIT_SECONDS = 30 + WATCHDOG + int(os.environ.get("FAULT_PATIENCE", "80"))
CALM = ("none", "pause")
TRAINING = ("--hidden", "8", "--layers", "2", "--epochs", "8", "--checkpoint-every", "2", "--seed", "1")
TRAINING += ("--intra-node", "messages")


@dataclass(frozen=True)
class Injection:
    """stage, fault: of `inject.py`; times: the passage at which it happens; on rank `rank` of `ranks`."""

    stage: str
    fault: str
    rank: int
    ranks: int
    times: int = 1

    def __str__(self):
        return f"{self.fault} in {self.stage} ({self.times}.) on rank {self.rank} of {self.ranks}"


@dataclass(frozen=True)
class Outcome:
    """code: None for a job that had to be ended from outside; happened: whether the stage was reached. Seconds in
    `since` count from then to the job's end.
    """

    code: int | None
    seconds: float
    text: str
    happened: bool
    since: float


@contextlib.contextmanager
def nursery(*modules):
    """A server that ranks are forked from; yields the path of its socket. modules: see `nursery.serve`."""
    with tempfile.TemporaryDirectory(prefix="hpcgnn-nursery-") as folder:
        path = Path(folder) / "socket"
        command = [sys.executable, HERE / "nursery.py", path, *modules]
        server = subprocess.Popen(list(map(str, command)), env=clean_environment(**QUIET))
        try:
            while not path.exists() and server.poll() is None:
                time.sleep(0.05)
            yield path
        finally:
            server.kill()
            server.wait(LIMIT_SECONDS)


def proxy(server):
    """The beginning of a command whose ranks a server of `nursery` forks: the server gets the words after it."""
    return (sys.executable, "-ISs", ROOT / "hpcgnn" / "fork_server" / "proxy.py", server)


def start(injection, graph, run_dir, server, *options, limit=LIMIT_SECONDS, per_node=None, without_mpi=False):
    """Run `hpcgnn train` with the fault, resuming the state of the run directory.

    server: of `nursery()`. per_node: ranks of a node, for --intra-node shared (None: all are on one). without_mpi: with
    the variables of torchrun.
    """
    mark = tempfile.NamedTemporaryFile(prefix="fault-")
    command = [injection.stage, injection.fault, injection.rank, injection.times, "--", "train", "--graph", graph]
    command += ["--run-dir", run_dir, "--resume", "--watchdog", WATCHDOG, *TRAINING, *options]
    environment = {**QUIET, "FAULT_MARK": mark.name}
    if per_node is not None:
        environment["FAULT_PER_NODE"] = str(per_node)
    words, variables = command_and_environment(
        injection.ranks, *command, python=proxy(server), without_mpi=without_mpi, **environment
    )
    begin, code = time.monotonic(), None
    with mark, tempfile.TemporaryFile("w+") as output:
        job = subprocess.Popen(words, env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = job.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            seconds, ended = time.monotonic() - begin, time.time()
            _end_session(job)
        output.seek(0)
        about = os.stat(mark.name)
        return Outcome(code, seconds, output.read(), about.st_size > 0, ended - about.st_mtime)


def _end_session(job):
    """End the rest of a job, by the process group that it was started with."""
    try:
        os.killpg(job.pid, signal.SIGTERM)
        job.wait(5)
        os.killpg(job.pid, signal.SIGKILL)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


def complaint(injection, outcome, run_dir):
    """Faults in how a job ended and in the files it left, in words; '' if there is none."""
    if outcome.code is None:
        return f"hung: still there after {outcome.seconds:.0f} s"
    expected_to_fail = outcome.happened and injection.fault not in CALM and not _harmless(injection)
    # MPICH's mpiexec ends the job when a process leaves like this, and reports 0: then the missing result must tell.
    silent = injection.fault == "_exit 0" and not (Path(run_dir) / "summary.json").exists()
    if expected_to_fail and outcome.code == 0 and not silent:
        return "claims success"
    if not expected_to_fail and outcome.code != 0:
        return f"failed with code {outcome.code} though nothing had happened"
    for path in checkpoints(run_dir):
        try:
            Checkpoint(path)
        except CheckpointError as error:
            return str(error)
    if expected_to_fail and injection.fault == "disk" and "Traceback" in outcome.text:
        return "a full disk gave a traceback"
    return ""


def _harmless(injection):
    """Only rank 0 writes files: a full disk elsewhere changes nothing, nor one after everything is written."""
    return injection.fault == "disk" and (injection.rank != 0 or injection.stage == "shutdown")
