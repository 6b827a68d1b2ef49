"""METIS in a process of its own, one for all splits: METIS may read memory that it never wrote, and end its process.

That is a known fault of its coarsening (METIS, issue 73), seen on graphs with weights of nodes and edges, about once in
a thousand splits of small skewed graphs. Another seed makes other coarse graphs, and a split without weights of edges
has not been seen to fail, so both are tried before giving up. Graphs and answers go through pipes.
"""

import atexit
import contextlib
import os
import pickle
import signal
import subprocess
import sys

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.placement.clusters import metis

TRIES = 4
_running: list[subprocess.Popen[bytes]] = []


def metis_apart(
    indptr: np.ndarray,
    indices: np.ndarray,
    edge_weights: np.ndarray | None,
    seed: int,
    vertex_weights: np.ndarray,
    shares: np.ndarray,
) -> np.ndarray:
    """`placement.clusters.metis` in another process: int64 (n,). Raises GraphError where METIS fails again and again,
    and where pymetis is not installed.
    """
    for attempt in range(TRIES):
        weights = edge_weights if attempt < TRIES - 1 else None
        process = _process()
        assert process.stdin is not None and process.stdout is not None
        try:
            question = indptr, indices, weights, len(shares), seed + attempt, vertex_weights, shares
            pickle.dump(question, process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):  # a pipe that is closed, an answer that breaks off
            code = _end(process)
            if code >= 0:
                raise GraphError(f"METIS's process ended with code {code}; see what it wrote above") from None
        else:
            if isinstance(answer, Exception):
                raise answer
            return np.asarray(answer)
    raise GraphError(
        f"METIS ended by signal {-code} on a graph of {len(vertex_weights)} nodes, {TRIES} times; try another --seed"
    )


def _process() -> subprocess.Popen[bytes]:
    if not _running or _running[0].poll() is not None:
        # Not with -m: the package imports this module, and Python warns of one that is imported and run.
        command = [sys.executable, "-c", f"from {__name__} import main; main()"]
        _running[:] = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)]
    return _running[0]


def _end(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, when it has read all there is."""
    with contextlib.suppress(OSError):
        process.communicate()
    _running.clear()
    return process.wait()


@atexit.register
def end() -> None:
    """End the process, if there is one."""
    for process in _running[:]:
        _end(process)


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the asking process gets it too, and ends the input
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # METIS prints there
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: np.ndarray | Exception
        try:
            answer = metis(*question)
        except (GraphError, MemoryError) as error:
            answer = error
        except RuntimeError as error:  # pymetis's, from METIS's codes
            answer = GraphError(f"METIS failed on a graph of {len(question[0]) - 1} nodes: {error}")
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
