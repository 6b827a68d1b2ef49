"""The graph file opened by all ranks; one of them reads the facts that all need.

A file system answers the same small questions once per rank, and one after another. So rank 0 reads and checks the root
attributes, the descriptions of the datasets, the clusters and the map. The others get them from it, and open the file
for their own slabs alone. That holds for one file on a shared file system. If the ranks see different files (copies on
the disks of nodes, or a new file under the old name), each reads its own. They compare the facts (app/agreement.py).
"""

import hashlib
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile, check_structure


def check_trainable(file: GraphFile, labelled: bool = True) -> None:
    """Raise GraphError for a graph without features or labels, FormatError for a file that breaks its attributes'
    promises. labelled: whether there must be classes.
    """
    check_structure(file)
    if labelled and file.meta.num_classes == 0:
        raise GraphError(f"{file.path} has no labels to train on; import it with labels (--labels)")


def open_graph(path: str | Path, comm: Communicator, labelled: bool = True) -> GraphFile:
    """The GraphFile at `path`, checked to be one that can be trained on; labelled: whether it must have classes.
    Collective. Raises FormatError or GraphError, on all ranks together.
    """
    seen = _seen(path)
    alike = _all_alike(seen, comm)
    file = None
    try:
        with comm.together("opening the graph", on_one=alike):
            if comm.rank == 0 or not alike:
                file = GraphFile(path)
                check_trainable(file, labelled)
        if alike:
            values = comm.broadcast_object(None if file is None else asdict(file.meta))
            with comm.together("opening the graph"):
                file = file or GraphFile(path, GraphMeta(**values))
                if _seen(path) != seen:  # rank 0 may have read the one before
                    raise FormatError(f"{path} was replaced while the ranks opened it; start the job again")
    except BaseException:
        if file is not None:
            file.file.close()
        raise
    assert file is not None, "every rank has opened it"
    file.shared = alike
    return file


def _seen(path: str | Path) -> str:
    """The identity of the file at a path."""
    try:
        found = os.stat(path)
    except OSError:
        return "none"
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _all_alike(seen: str, comm: Communicator) -> bool:
    """Whether all ranks see the same. Collective."""
    digest = int.from_bytes(hashlib.sha256(seen.encode()).digest()[:7], "big")
    extremes = comm.allreduce_(torch.tensor([digest, -digest]), "control", "max")
    return bool(extremes[0] == -extremes[1])


def read_clusters(file: GraphFile, comm: Communicator) -> np.ndarray:
    """int64 (K + 1,): the first node of each cluster, and the number of nodes. Collective. Raises FormatError, on all
    ranks together.
    """
    offsets = None
    with comm.together("reading the clusters", on_one=file.shared):
        if comm.rank == 0 or not file.shared:
            offsets = file.read("clusters/offsets", dtype=np.int64)
            if offsets[0] != 0 or offsets[-1] != file.meta.num_nodes or (np.diff(offsets) < 0).any():
                raise FormatError(
                    f"{file.path}: clusters/offsets do not run from 0 to {file.meta.num_nodes}; the file is corrupted"
                )
    if file.shared:
        return comm.broadcast_array(offsets, file.meta.num_clusters + 1, np.int64)
    assert offsets is not None, "every rank has read them"
    return offsets
