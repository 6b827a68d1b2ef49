"""Arrays that a program or another library has in memory, as numpy has them. torch is not loaded for that."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.given_links import HELD
from hpcgnn.graphfile.schema import SPLITS, Csr
from partition_tools.canonical.links import NAMES, PAIRS
from partition_tools.readers.tables.node_ids import alike
from partition_tools.readers.tables.node_tables import split_codes


def as_array(values: Any, what: str) -> np.ndarray:
    """A numpy array of an array, a tensor of torch, a pandas object or a list. what: its name. Raises FormatError."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):  # a tensor, without loading torch for others
        try:
            values = values.detach().cpu()
            values = values if str(values.layout).endswith("strided") else values.to_dense()
            return values.float().numpy() if str(values.dtype) == "torch.bfloat16" else values.numpy()
        except (TypeError, RuntimeError) as error:
            raise FormatError(f"{what} is a tensor that is no array of numbers: {error}") from error
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise FormatError(f"{what} has masked entries; fill them (values.filled) with what stands for none, -1 or NaN")
    index = getattr(values, "index", None)
    if hasattr(values, "to_numpy") and index is not None and not callable(index):
        if not np.array_equal(np.asarray(index), np.arange(len(index))):
            raise FormatError(
                f"{what} has an index that may name the nodes; put its rows in node order, then reset_index(drop=True)"
            )
        values = values.to_numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise FormatError(f"{what} cannot be made an array: {error}") from error
    if array.dtype.kind == "O":
        array = _numbers_or_words(array)
    words = array.dtype.kind != "O" or all(isinstance(value, (str, type(None), float)) for value in array.flat)
    if array.dtype.kind == "V" or not words:
        raise FormatError(f"{what} must be an array of numbers (or of words), got {array.dtype} of several kinds")
    return array


def _numbers_or_words(array: np.ndarray) -> np.ndarray:
    """An array of objects that are all numbers, or none, as an array of numbers; any other as it is."""
    nothing = np.array([value is None or type(value).__name__ == "NAType" for value in array.flat], bool)
    given = [value for value, none in zip(array.flat, nothing, strict=True) if not none]
    if not given or not all(isinstance(value, int | float | np.number | np.bool_) for value in given):
        return array
    if not nothing.any():
        return np.array(given).reshape(array.shape)
    numbers = np.full(array.size, np.nan)
    numbers[~nothing] = given
    return numbers.reshape(array.shape)


def places(named: np.ndarray, ids: np.ndarray, what: str) -> np.ndarray:
    """The rows of the ids that an array names, in its shape. Raises FormatError for an id that `ids` has twice, or not
    at all. what: a name for the array.
    """
    same = alike({"node_ids": plain_ids(ids), what: plain_ids(named.reshape(-1))})
    names, wanted = same["node_ids"], same[what]
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    if len(ordered) and (ordered[1:] == ordered[:-1]).any():
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        raise FormatError(f"node_ids has the id {twice} twice; expected each node once")
    place = np.searchsorted(ordered, wanted)
    unknown = place >= len(ordered)
    unknown[~unknown] = ordered[place[~unknown]] != wanted[~unknown]
    if unknown.any():
        raise FormatError(f"{what} names the id {wanted[np.argmax(unknown)]}, which node_ids does not have")
    return order[place].reshape(named.shape)


def plain_ids(ids: np.ndarray) -> np.ndarray:
    """Ids as integers or text, so that they can be compared. FormatError for none and for other types."""
    if ids.dtype.kind == "O" and any(value is None or value != value for value in ids.flat):
        raise FormatError("node_ids has none for a node; expected a number or a word")
    if ids.ndim != 1 or ids.dtype.kind not in "iuOU":
        raise FormatError(f"node ids must be a vector of integers or words, got {ids.dtype}{list(ids.shape)}")
    return ids.astype(str) if ids.dtype.kind == "O" else ids


def as_rows(features: Any) -> np.ndarray | Csr | None:
    """Features as rows: dense ones, or the `Csr` of a sparse matrix of SciPy."""
    if features is None or not scipy.sparse.issparse(features):
        return None if features is None else as_array(features, "features")
    if features.dtype.kind not in "iufb":
        raise FormatError(f"features must be real numbers, got {features.dtype}")
    matrix = features.tocsr()
    matrix.sum_duplicates()
    return Csr(matrix.indptr.astype(np.int64), matrix.indices, matrix.data.astype(np.float32), matrix.shape[1])


def as_split(split: Any, ids: np.ndarray | None = None) -> dict[str, np.ndarray | None]:
    """{"train" | "val" | "test": mask or node numbers} of such a mapping, or of one word for each node. ids: (n,) the
    caller's names of the nodes, by which lists name them, or None.
    """
    if split is None:
        return {}
    if isinstance(split, Mapping):
        if unknown := [name for name in split if name not in SPLITS]:
            raise FormatError(f"split has {unknown[0]!r}; expected train, val and test")
        found = {name: None if one is None else as_array(one, f"split {name}") for name, one in split.items()}
        for name, one in found.items():
            if ids is not None and one is not None and one.dtype != bool and one.ndim == 1 and len(one):
                found[name] = places(one, ids, f"split {name}")
        return found
    words = as_array(split, "split")
    if words.ndim != 1 or words.dtype.kind not in "OU":
        raise FormatError(
            "split must be {'train': …, 'val': …, 'test': …} of masks or node numbers, or one of the words train, val, "
            f"test or nothing for each node, got {words.dtype}{list(words.shape)}"
        )
    codes = split_codes(words, "split")
    return {name: codes == value for name, value in SPLITS.items()}


def as_links(links: Mapping[str, Any] | None, what: str = "links") -> dict[str, dict[str, np.ndarray]]:
    """{"val" | "test": {one of NAMES: array}} of such a mapping, or of one with pairs alone. Raises GraphError."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for split, given in (links or {}).items():
        if split not in HELD:
            also = "; the edges of the graph are those of training, leave train out" if split == "train" else ""
            raise GraphError(f"{what} has {split!r}; expected val and test{also}")
        parts = given if isinstance(given, Mapping) else {PAIRS: given}
        if strange := [part for part in parts if part not in NAMES]:
            raise GraphError(f"{what} {split} has {strange[0]!r}; expected of: {', '.join(NAMES)}")
        found[split] = {part: as_array(array, f"{what} {split} {part}") for part, array in parts.items()}
    return found
