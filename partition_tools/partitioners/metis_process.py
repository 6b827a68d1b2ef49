"""METIS in a process of its own, one for all splits: METIS may read memory that it never wrote, and end its process.

That is a known fault of its coarsening (METIS, issue 73), seen on a small skewed graph with weights of nodes and edges.
Another seed makes other coarse graphs, and a split without weights of edges was never seen to fail. So both are tried
before giving up. Graphs and answers go through pipes. Maps of clusters call METIS in their own process
(`placement.clusters`): training makes them too.
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
    code = 0
    for attempt in range(TRIES):
        weights = edge_weights if attempt < TRIES - 1 else None
        answer = _ask((indptr, indices, weights, len(shares), seed + attempt, vertex_weights, shares))
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, int):
            return np.asarray(answer)
        code = answer
        if code == -signal.SIGKILL:
            raise GraphError(
                f"METIS was killed (signal 9) on a graph of {len(vertex_weights)} nodes, probably for want of memory; "
                "--method kaminpar takes less"
            )
        if code >= 0:
            raise GraphError(f"METIS's process ended with code {code}; see what it wrote above")
    raise GraphError(
        f"METIS ended by signal {-code} on a graph of {len(vertex_weights)} nodes, {TRIES} times; try another --seed"
    )


def _ask(question: tuple[object, ...]) -> np.ndarray | Exception | int:
    """The answer, or the code that the process ended with."""
    process = _process()
    assert process.stdin is not None and process.stdout is not None
    try:
        pickle.dump(question, process.stdin, pickle.HIGHEST_PROTOCOL)
        process.stdin.flush()
        answer: np.ndarray | Exception = pickle.load(process.stdout)
        return answer
    except (OSError, EOFError, pickle.UnpicklingError):  # a pipe that is closed, an answer that breaks off
        code = process.wait()
        end()
        return code
    except BaseException:  # else the next question would get this one's answer
        end()
        raise


def _process() -> subprocess.Popen[bytes]:
    if not _running or _running[0].poll() is not None:
        # It finds modules where this process does: Python would look into the current folder first. Not with -m: the
        # package imports this module, and Python warns of one that is imported and run.
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
        command = [sys.executable, "-P", "-c", program]
        _running[:] = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)]
    return _running[0]


@atexit.register
def end() -> None:
    """End the process, if there is one, whatever it is doing."""
    while _running:
        process = _running.pop()
        process.kill()
        with contextlib.suppress(OSError):
            process.communicate()


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the asking process gets it too, and ends the input
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # METIS prints there
    while True:
        answer: np.ndarray | Exception
        try:
            answer = metis(*pickle.load(sys.stdin.buffer))
        except EOFError:
            return
        except (GraphError, MemoryError) as error:
            answer = error
        except RuntimeError as error:  # pymetis's, from METIS's codes
            answer = GraphError(f"METIS failed: {error}")
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
