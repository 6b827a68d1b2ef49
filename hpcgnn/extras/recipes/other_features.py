"""A graph file once more, with other features of its nodes: all else is copied as it is stored."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.graphfile.copying import copy_datasets
from hpcgnn.graphfile.hdf5 import replacing, write_attributes, written_file
from hpcgnn.graphfile.ranges import CHUNK_BYTES
from hpcgnn.graphfile.storage import GraphFile

_FEATURES = "nodes/features"
#: put(first row, rows float32 (m, width of the part), part): the next rows of a part.
Put = Callable[[int, np.ndarray, int], None]


@contextlib.contextmanager
def with_other_features(
    file: GraphFile, path: str | Path, widths: Sequence[int], labels: int = 0, **attributes: Any
) -> Iterator[Put]:
    """Copy an open graph file with other float32 features (n, Σ widths), and yield the function that fills them.

    It takes rows of one part at a time, in the order of the file. A chunk holds columns of one part, so that each is
    written once, where parts are as wide as the first. The copy is at `path` when the body has ended.

    Args:
        file: the open file.
        path: the copy.
        widths: columns of each part.
        labels: how many of them, the last ones, are hops of labels.
        attributes: root attributes in addition to the file's.

    Raises:
        FormatError: the copy cannot be written, or the file cannot be read.
    """
    with replacing(path) as temporary, written_file(temporary) as (copy, check):
        known = copy_datasets(file, copy, lambda name: name.startswith(_FEATURES))
        check()
        ends = list(itertools.accumulate(widths))
        about = {"num_features": ends[-1], "num_feature_parts": len(widths), "sparse_features": False}
        known.pop("num_label_parts", None)
        if labels:
            about |= {"num_label_parts": labels, "format_version": max(5, int(known["format_version"]))}
        write_attributes(copy, **{**known, **about, **attributes})
        rows = max(1, min(file.meta.num_nodes, CHUNK_BYTES // (4 * ends[-1])))
        shape = file.meta.num_nodes, ends[-1]
        features = copy.create_dataset(
            _FEATURES, shape, np.float32, chunks=(rows, widths[0]), maxshape=(None, shape[1]), fletcher32=True
        )

        def put(first: int, rows: np.ndarray, part: int) -> None:
            features[first : first + len(rows), ends[part] - widths[part] : ends[part]] = rows
            check()

        yield put
