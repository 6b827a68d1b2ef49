"""Plain .npz archives, in the two vocabularies that graph data comes in.

* `edge_index` int (2, E), row 0 the sources and row 1 the destinations; `x` (n, F) or the CSR pieces `x_indptr`,
  `x_indices`, `x_data`, `x_shape`; `y`; optional `edge_weight`, `edge_type`
* `src`, `dst` int (E,); `feat` (n, F); `label`

Either with optional `train_mask`, `val_mask`, `test_mask`, `num_classes`, `num_nodes`, `node_type` int (n,), and the
names of the types as arrays of strings, `edge_type_names`, `node_type_names`. Pickled arrays are refused:
loading one runs code of the file's author.
"""

import contextlib
import pickle
import tokenize
import zipfile
import zlib

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graph.storage import Csr
from partition_tools.counts import largest, stated
from partition_tools.raw import RawGraph

NAME = "npz"
# What numpy, zipfile and zlib say of an archive or a header that is damaged.
_DAMAGE = (ValueError, TypeError, OSError, EOFError, SyntaxError, NotImplementedError, zipfile.BadZipFile, zlib.error,
           tokenize.TokenError)


def matches(path):
    """Whether a path looks like this format."""
    return path.suffix == ".npz"


@contextlib.contextmanager
def load(path):
    """An open archive, for a `with` statement. FormatError if it is not one."""
    with open(path, "rb") as handle:
        try:
            archive = np.load(handle, allow_pickle=False)
        except (*_DAMAGE, pickle.UnpicklingError) as error:
            raise FormatError(f"{path} is not a readable .npz archive: {error}") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise FormatError(f"{path} is a single array, expected an .npz archive of several")
        with archive:
            yield archive


def member(archive, path, name):
    """One array of an archive, or None if it is not there. FormatError for pickled and damaged ones."""
    if name not in archive.files:
        return None
    try:
        return archive[name]
    except _DAMAGE as error:
        hint = "; save it again as a plain array, without objects" if "ickle" in str(error) else ""
        raise FormatError(f"{path}: array {name} cannot be read: {error}{hint}") from error


def read(path, tables=None, reporter=None):
    """The `RawGraph` of an archive. Raises FormatError naming what is missing."""
    if tables is not None:
        tables.refuse(NAME)
    with load(path) as archive:
        def get(name):
            array = member(archive, path, name)
            if array is not None and array.ndim == 0:
                raise FormatError(f"{path}: {name} is a single value, expected an array of them")
            return array

        if "edge_index" in archive.files:
            ends = get("edge_index")
            if ends.ndim != 2 or ends.shape[0] != 2:
                raise FormatError(f"{path}: edge_index must have shape (2, E), got {ends.shape}")
            (src, dst), labels, features = ends, get("y"), _features(path, get)
        elif {"src", "dst"} <= set(archive.files):
            src, dst, labels, features = get("src"), get("dst"), get("label"), get("feat")
        else:
            raise FormatError(f"{path} has neither edge_index nor src and dst; it has "
                              f"{', '.join(archive.files) or 'nothing'}")
        split = {name: get(f"{name}_mask") for name in ("train", "val", "test")}
        for name, mask in split.items():
            if mask is not None and mask.dtype != bool:
                if mask.dtype.kind not in "iu" or mask.ndim != 1 or not np.isin(mask, (0, 1)).all():
                    raise FormatError(f"{path}: {name}_mask must be a vector of booleans, got {mask.dtype}{mask.shape}")
                split[name] = mask.astype(bool)
        num_classes, num_nodes = (
            None if name not in archive.files else stated(member(archive, path, name), f"{path}: {name}")
            for name in ("num_classes", "num_nodes")
        )
        weight, kind, node_type = get("edge_weight"), get("edge_type"), get("node_type")
        names = {what: get(f"{what[:-1]}_type_names") for what in ("nodes", "edges")}
    return RawGraph(src, dst, _count_nodes(src, dst, features, (labels, node_type, *split.values()), num_nodes),
                    features, labels, split, num_classes, weight, kind, path.stem,
                    node_type=node_type,
                    type_names={what: given.tolist() for what, given in names.items() if given is not None})


def _features(path, get):
    dense = get("x")
    if dense is not None:
        return dense
    parts = [get(f"x_{name}") for name in ("indptr", "indices", "data", "shape")]
    if all(part is None for part in parts):
        return None
    if parts[0] is None or parts[1] is None or parts[3] is None:
        raise FormatError(f"{path}: sparse features need x_indptr, x_indices and x_shape (and x_data, else all ones)")
    shape = parts[3].reshape(-1)
    if len(shape) != 2:
        raise FormatError(f"{path}: x_shape must hold two numbers, rows and columns, got {len(shape)}")
    for name, part in zip(("x_indptr", "x_indices"), parts):
        if part.ndim != 1 or part.dtype.kind not in "iu":
            raise FormatError(f"{path}: {name} must be a vector of integers, got {part.dtype}{list(part.shape)}")
    if parts[2] is not None and (parts[2].ndim != 1 or parts[2].dtype.kind not in "iufb"):
        raise FormatError(f"{path}: x_data must be a vector of numbers, got {parts[2].dtype}{list(parts[2].shape)}")
    return Csr(*parts[:3], stated(shape[1], f"{path}: the second number of x_shape"))


def _count_nodes(src, dst, features, others, num_nodes):
    """Stated, or the length of the first per-node array there is, or one more than the largest id."""
    if num_nodes is not None:
        return num_nodes
    if features is not None:
        return len(features.indptr) - 1 if isinstance(features, Csr) else len(features)
    for array in others:
        if array is not None:
            return len(array)
    if src.dtype.kind not in "iu" or dst.dtype.kind not in "iu":
        raise FormatError(f"node ids must be integers, got {src.dtype} and {dst.dtype}")
    return largest(src, dst) + 1
