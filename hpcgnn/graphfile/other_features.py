"""A graph file once more, with other features of its nodes: all else is copied as it is stored."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.attributes import read_attributes, write_attributes
from hpcgnn.graphfile.chunks import CHUNK_BYTES
from hpcgnn.graphfile.storage import GraphFile, replacing
from hpcgnn.graphfile.writing import written_file

_FEATURES = "nodes/features"
#: put(first row, rows float32 (m, width), part): the next rows of a part.
Put = Callable[[int, np.ndarray, int], None]


@contextlib.contextmanager
def with_other_features(file: GraphFile, path: str | Path, width: int, parts: int, **attributes: Any) -> Iterator[Put]:
    """Copy an open graph file with other float32 features (n, parts × width), and yield the function that fills them.

    It takes rows of one part at a time, in the order of the file. A chunk holds columns of one part, so that each is
    written once. The copy is at `path` when the body has ended.

    Args:
        file: the open file.
        path: the copy.
        width: columns of a part.
        parts: number of parts.
        attributes: root attributes in addition to the file's.

    Raises:
        FormatError: the copy cannot be written, or the file cannot be read.
    """
    with replacing(path) as temporary, written_file(temporary) as (copy, check):
        try:
            known = read_attributes(file.file)
            names: list[str] = []
            file.file.visit(names.append)  # links are not followed
            for name in names:
                if not name.startswith(_FEATURES) and hasattr(file.file[name], "shape"):
                    file.shape(name)  # refuses data in other files
                    file.file.copy(file.file[name], copy, name=name)
        except (KeyError, OSError, RuntimeError) as error:  # writing raises nothing: see writing.py
            raise FormatError(f"{file.path} cannot be copied ({error}); the file is corrupted") from error
        check()
        about = {"num_features": parts * width, "num_feature_parts": parts, "sparse_features": False}
        write_attributes(copy, **{**known, **about, **attributes})
        rows = max(1, min(file.meta.num_nodes, CHUNK_BYTES // (4 * parts * width)))
        shape = file.meta.num_nodes, parts * width
        features = copy.create_dataset(
            _FEATURES, shape, np.float32, chunks=(rows, width), maxshape=(None, shape[1]), fletcher32=True
        )

        def put(first: int, rows: np.ndarray, part: int) -> None:
            features[first : first + len(rows), part * width : (part + 1) * width] = rows
            check()

        yield put
