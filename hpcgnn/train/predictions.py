"""The file of `hpcgnn evaluate --predictions`: its name decides what it is, and nothing is overwritten unasked."""

import os
from pathlib import Path
from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import RunDirError
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.original_order import write_in_original_order, write_table_in_original_order

ARRAYS, TABLE = (".h5", ".hdf5"), ".csv"


def check_name(path: str | Path) -> None:
    """Raise RunDirError unless the name of a file of predictions says what it is to be."""
    path = Path(path)
    if path.suffix.lower() not in (*ARRAYS, TABLE):
        raise RunDirError(
            f"--predictions {path}: expected a name that ends with .h5 or .hdf5 (an array), or with .csv (a table), "
            f"got {path.suffix or 'none of them'!r}"
        )


def check_place(path: str | Path, force: bool = False) -> None:
    """Raise RunDirError unless a file can be written to `path`, as far as that can be known without doing it. On rank 0
    alone: others may not see its directory.

    force: an existing file is to be replaced.
    """
    path = Path(path)
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = "is a directory" if path.is_dir() else "is in no directory that exists"
        raise RunDirError(f"--predictions {path} {what}; expected a file name in a directory that exists")
    if path.exists() and not force:
        raise RunDirError(f"--predictions {path} exists; choose another name, or replace it with --force")
    if not os.access(path.absolute().parent, os.W_OK):
        raise RunDirError(f"--predictions {path}: its directory cannot be written; choose another one")


def write_predictions(
    path: str | Path, rows: torch.Tensor, local: LocalGraph, comm: Communicator, origin: dict[str, Any]
) -> None:
    """Write what was predicted in the original node order. Collective.

    rows: int32 (n_p, 1) classes, or (n_p, C) of 0 and 1 for C labels; origin: attributes for an HDF5
    file.
    """
    ids, nodes = local.original_id, local.num_nodes
    if Path(path).suffix.lower() == TABLE:
        columns = [f"label_{label}" for label in range(rows.shape[1])] if local.multi_label else ["class"]
        write_table_in_original_order(path, columns, rows, ids, nodes, comm)
    else:
        write_in_original_order(path, "prediction", rows, ids, nodes, comm, **origin)
