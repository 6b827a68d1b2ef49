"""The graph file opened by all ranks, with what all of them must know read by one.

A file system answers the same small questions as often as there are ranks, and one after another. So rank 0 reads and
checks the root attributes, the descriptions of the datasets, the clusters and the map, and the others get them from it.
They open the file for their own slabs alone. That holds for one file on a shared file system. Where the ranks see
different ones (copies on the disks of nodes, or a file that is made again at this moment), each reads its own, and the
ranks compare what they found (app/agreement.py).
"""

import hashlib
import os
from pathlib import Path

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.graphfile.structure import check_structure


def check_trainable(file: GraphFile, labelled: bool = True) -> None:
    """GraphError if there is nothing to train from or on, FormatError if the file is not what its attributes
    promise. labelled: whether there must be classes.
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
            meta = comm.broadcast_object(None if file is None else file.meta)
            with comm.together("opening the graph"):
                file = file or GraphFile(path, meta)
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
    """What tells the file that a path leads to from others."""
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
