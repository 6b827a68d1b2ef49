"""KaMinPar clusters by nested dissection: as METIS's, in a small part of the memory and on all cores.

Gottesbüren, Heuer, Sanders, Schulz, Seemaier, "Deep Multilevel Graph Partitioning", ESA 2021; with the graph in memory
compressed: Salwasser, Seemaier, Gottesbüren, Sanders, "Tera-Scale Multilevel Graph Partitioning", IPDPS 2025. The graph
goes to KaMinPar as a file, into a process of its own: its output is caught, and its memory is given back. Parts
that METIS splits sooner than a process starts are left to METIS.

The seed is set, but threads race: with one thread a result can be repeated, with several it cannot.
"""

import json
import subprocess
import sys
import tempfile
from importlib import util
from pathlib import Path

import numpy as np
import scipy

from hpcgnn import cores
from hpcgnn.errors import FormatError, GraphError
from hpcgnn.placement.clusters import map_clusters
from partition_tools.partitioners import metis
from partition_tools.partitioners.dissection import dissected
from partition_tools.partitioners.parhip import write_parhip
from partition_tools.partitioners.pattern import Pattern
from partition_tools.partitioners.request import ClusterRequest, Clusters
from partition_tools.partitioners.weights import at_most_a_part
from partition_tools.workspace.scratch import Scratch

NAME = "kaminpar"
HELP = "the same by KaMinPar: in less memory, on all cores; needs the extra `kaminpar`"
NEW_FILE, ON_DISK = False, True
ranks = map_clusters
MISSING = "KaMinPar is not installed; pip install 'hpcgnn[kaminpar]', or use --method metis"
SMALL = 1 << 20  # edges of a part that METIS splits sooner
EPSILON = 0.03


def installed() -> bool:
    """Whether the package `kaminpar` can be imported. It is not: it would start threads."""
    try:
        return util.find_spec("kaminpar") is not None
    except ValueError:  # what was loaded has no specification
        return False


def clusters(asked: ClusterRequest, scratch: Scratch) -> Clusters:
    """(order int64 (n,), offsets int64 (K + 1,)), see `dissection.dissected`. Raises GraphError where KaMinPar is not
    installed.
    """
    if not installed():
        raise GraphError(MISSING)
    return dissected(asked, split, scratch, _cut)


def _cut(part: Pattern, shares: np.ndarray, seed: int) -> np.ndarray:
    """KaMinPar as a `dissection.Cut`."""
    path = part.scratch.directory / f"{part.name}.parhip"
    try:
        weights = at_most_a_part(part.weights, shares)
        write_parhip(path, part.degrees, part.blocks(), weights, part.edge_weights())
        return kaminpar_split(path, shares, seed)
    finally:
        path.unlink(missing_ok=True)


def split(graph: "scipy.sparse.csr_matrix", weights: np.ndarray, shares: np.ndarray, seed: int) -> np.ndarray:
    """KaMinPar, or METIS for small graphs, as a `dissection.Split`."""
    if graph.nnz < SMALL:
        return metis.split(graph, weights, shares, seed)
    try:
        with tempfile.TemporaryDirectory(prefix="hpcgnn-kaminpar-") as folder:
            path = Path(folder) / "graph.parhip"
            heavy = [graph.data] if graph.data.max() > 1 else None
            write_parhip(path, np.diff(graph.indptr), [graph.indices], weights, heavy)
            return kaminpar_split(path, shares, seed)
    except OSError as error:
        raise FormatError(
            f"cannot write a graph for KaMinPar to {tempfile.gettempdir()}: {error.strerror or error}; set TMPDIR to a "
            "directory with more space"
        ) from error


def kaminpar_split(path: Path, shares: np.ndarray, seed: int = 0) -> np.ndarray:
    """The part of each node of a ParHIP file, int32 (n,); parts may come out empty.

    shares: relative weights of the parts. A part is at most EPSILON above its share where the weights of the nodes
    allow it. The answer lies next to the graph for a moment, in a file of 4 n bytes. Raises GraphError where KaMinPar
    fails.
    """
    answer = path.with_name(f"{path.name}.parts.npy")
    program = Path(__file__).with_name("kaminpar_process.py")
    weights = (np.asarray(shares) / np.sum(shares)).tolist()
    given = [str(path), str(answer), seed, len(cores.usable()), EPSILON, weights]
    command = [sys.executable, "-P", str(program), json.dumps(given)]  # nothing comes from the current folder
    try:
        with cores.all_used():  # it inherits them
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
            said = next((line for line in reversed(lines) if "rror" in line), lines[-1])
            ended = f"by signal {-done.returncode}" if done.returncode < 0 else f"with code {done.returncode}"
            raise GraphError(
                f"KaMinPar ended {ended} and said: {said}; --method metis does without it"
            ) from ChildProcessError(done.returncode)  # no fault of the graph: what was finished before stays
        return np.load(answer)
    finally:
        answer.unlink(missing_ok=True)
