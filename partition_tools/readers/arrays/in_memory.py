"""Arrays that a program or another library has in memory, as numpy has them. torch is not loaded for that."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.given_links import HELD
from hpcgnn.graphfile.schema import Csr
from partition_tools.canonical.links import NAMES, PAIRS
from partition_tools.readers.tables.headings import SPLIT_OF, says_id
from partition_tools.readers.tables.node_ids import alike


class InMemory:
    """Arrays by their names, as `named_arrays.py` wants them. path: the graph's name in errors."""

    def __init__(self, what: str, arrays: Mapping[str, Any]) -> None:
        self.path, self.arrays, self.files = Path(what), dict(arrays), list(arrays)

    def array(self, name: str) -> np.ndarray | None:
        """One array, or None if it is not there."""
        return as_array(self.arrays[name], name) if name in self.arrays else None


def as_array(values: Any, what: str) -> np.ndarray:
    """A numpy array of an array, a tensor of torch or a list. what: its name, for errors. Raises FormatError."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):  # a tensor, without loading torch for others
        try:
            values = values.detach().cpu()
            values = values if str(values.layout).endswith("strided") else values.to_dense()
            return values.float().numpy() if str(values.dtype) == "torch.bfloat16" else values.numpy()
        except (TypeError, RuntimeError) as error:
            raise FormatError(f"{what} is a tensor that is no array of numbers: {error}") from error
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise FormatError(
            f"{what} has masked entries, expected a value in each; fill them (values.filled) with what stands for "
            "none, -1 or NaN for labels"
        )
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise FormatError(f"{what} cannot be made an array: {error}") from error
    if array.dtype.kind == "V":
        raise FormatError(
            f"{what} is a structured array with the fields {', '.join(array.dtype.names or ())}; give one"
        )
    if array.dtype.kind == "O":
        array = _numbers_or_words(array)
    if array.dtype.kind == "O" and not all(isinstance(value, (str, type(None), float)) for value in array.flat):
        raise FormatError(f"{what} must be an array of numbers (or of words), got objects of several kinds")
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


def by_node(values: Any, what: str, ids: np.ndarray | None) -> Any:
    """Values with a row for each node, in node order: pandas objects go by their index, all others by position.

    ids: (n,) the caller's names of the nodes, in node order, or None. Raises FormatError for an index that is neither
    the numbers of the rows nor the names of all nodes.
    """
    index = getattr(values, "index", None)
    if index is None or callable(index) or not hasattr(values, "to_numpy"):
        return values
    columns = [str(name) for name in getattr(values, "columns", ())]
    if columns and len(columns) > 1 and says_id(columns[0]):
        raise FormatError(
            f"{what} has a column {columns[0]}, which names nodes; make it the index (set_index), or take it out"
        )
    array, names = values.to_numpy(), np.asarray(index)
    if np.array_equal(names, np.arange(len(names))):
        return array
    if ids is None and names.dtype.kind in "iu" and np.array_equal(np.sort(names), np.arange(len(names))):
        return array[np.argsort(names)]
    if ids is None:
        raise FormatError(
            f"{what} has an index ({', '.join(map(str, names[:3].tolist()))}, ...) that names nodes, and node_ids is "
            "not given; give node_ids, or reset_index(drop=True) where the rows are in node order"
        )
    return array[places(ids, plain_ids(names), "node_ids", f"the index of {what}")]


def places(named: np.ndarray, ids: np.ndarray, what: str, where: str = "node_ids") -> np.ndarray:
    """The rows of the ids that an array names, in its shape. Raises FormatError for an id that `ids` has twice, or not
    at all. what, where: names of the two, for errors.
    """
    same = alike({where: plain_ids(ids), what: plain_ids(named.reshape(-1))})
    names, wanted = same[where], same[what]
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    if len(ordered) and (ordered[1:] == ordered[:-1]).any():
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        raise FormatError(f"{where} has the id {twice} twice; expected each node once")
    place = np.searchsorted(ordered, wanted)
    unknown = place >= len(ordered)
    unknown[~unknown] = ordered[place[~unknown]] != wanted[~unknown]
    if unknown.any():
        raise FormatError(
            f"{what} names the id {wanted[np.argmax(unknown)]}, which {where} does not have; it must name every node"
        )
    return order[place].reshape(named.shape)


def plain_ids(ids: np.ndarray) -> np.ndarray:
    """Ids as integers or text, so that they can be compared. FormatError for none and for other types."""
    if ids.dtype.kind == "O":
        nothing = np.array([value is None or value != value for value in ids.flat], bool)
        if nothing.any():
            raise FormatError(f"node_ids has none for node {int(np.argmax(nothing))}; expected a number or a word")
    if ids.ndim != 1 or ids.dtype.kind not in "iuOU":
        raise FormatError(f"node ids must be a vector of integers or words, got {ids.dtype}{list(ids.shape)}")
    return ids.astype(str) if ids.dtype.kind == "O" else ids


def mapped_files(values: Iterable[Any]) -> Iterator[str]:
    """The files that arrays, or containers of arrays, are mapped from: an output must not take their place."""
    for value in values:
        if isinstance(value, Csr):
            yield from mapped_files((value.indptr, value.indices, value.data))
        elif isinstance(value, Mapping):
            yield from mapped_files(value.values())
        while isinstance(value, np.ndarray):
            if isinstance(value, np.memmap) and value.filename is not None:
                yield str(value.filename)
            value = value.base


def as_rows(features: Any) -> np.ndarray | Csr | None:
    """Features as rows: dense ones, or the `Csr` of a sparse matrix of SciPy."""
    if features is None:
        return None
    if scipy.sparse.issparse(features):
        if features.dtype.kind not in "iufb":
            raise FormatError(f"features must be real numbers, got {features.dtype}")
        matrix = features.tocsr()
        matrix.sum_duplicates()
        return Csr(matrix.indptr.astype(np.int64), matrix.indices, matrix.data.astype(np.float32), matrix.shape[1])
    return as_array(features, "features")


def _members(values: Any, what: str, ids: np.ndarray | None) -> np.ndarray | None:
    """A mask in node order, or rows of the nodes that a list names: by `ids`, as the edges name them, if there are."""
    if values is None:
        return None
    if str(getattr(values, "dtype", "")) in ("bool", "boolean"):
        values = by_node(values, what, ids)
    members = as_array(values, what)
    if ids is None or members.dtype == bool or members.ndim != 1 or not len(members):
        return members
    return places(members, ids, what)


def as_split(split: Any, ids: np.ndarray | None = None) -> dict[str, np.ndarray | None]:
    """{"train" | "val" | "test": mask or node numbers} of such a mapping, or of one word for each node. ids: see
    `by_node`.
    """
    if split is None:
        return {}
    if isinstance(split, Mapping):
        unknown = [name for name in split if name not in SPLIT_OF]
        if unknown:
            raise FormatError(f"split has {unknown[0]!r}; expected train, val and test")
        if twice := [name for name in split if [SPLIT_OF[other] for other in split].count(SPLIT_OF[name]) > 1]:
            raise FormatError(f"split has {' and '.join(map(repr, twice))}, which mean the same; leave one of them out")
        return {SPLIT_OF[name]: _members(one, f"split {name}", ids) for name, one in split.items()}
    words = as_array(by_node(split, "split", ids), "split")
    if words.ndim != 1 or words.dtype.kind not in "OU":
        raise FormatError(
            "split must be {'train': …, 'val': …, 'test': …} of masks or node numbers, or one of the words train, val, "
            f"test or nothing for each node, got {words.dtype}{list(words.shape)}"
        )
    texts = np.array(["" if word is None or word != word else str(word).strip().lower() for word in words])
    strange = sorted(set(texts.tolist()) - set(SPLIT_OF) - {"", "none"})
    if strange:
        raise FormatError(f"split has the word {strange[0]!r}; expected train, val, test or nothing")
    codes = np.array([SPLIT_OF.get(word, "") for word in texts.tolist()], dtype="U5")
    return {name: codes == name for name in ("train", "val", "test")}


def as_links(links: Mapping[str, Any] | None, what: str = "links") -> dict[str, dict[str, np.ndarray]]:
    """{"val" | "test": {one of NAMES: array}} of such a mapping, or of one with pairs alone. Raises GraphError."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, given in (links or {}).items():
        split = SPLIT_OF.get(name, name)
        if split not in HELD:
            also = "; the edges of the graph are those of training, leave train out" if split == "train" else ""
            raise GraphError(f"{what} has {name!r}; expected val and test{also}")
        parts = given if isinstance(given, Mapping) else {PAIRS: given}
        if strange := [part for part in parts if part not in NAMES]:
            raise GraphError(f"{what} {name} has {strange[0]!r}; expected of: {', '.join(NAMES)}")
        found[split] = {part: as_array(array, f"{what} {name} {part}") for part, array in parts.items()}
    return found
