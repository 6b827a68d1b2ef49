"""Arrays that a program or another library has in memory, as numpy has them. torch is not loaded for that."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.schema import Csr

SPLIT_OF = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


class InMemory:
    """Arrays by their names, as `sources/named_arrays.py` wants them. path: what the graph is called in errors."""

    def __init__(self, what: str, arrays: Mapping[str, Any]) -> None:
        self.path, self.arrays, self.files = Path(what), dict(arrays), list(arrays)

    def array(self, name: str) -> np.ndarray | None:
        """One array, or None if it is not there."""
        return as_array(self.arrays[name], name) if name in self.arrays else None


def as_array(values: Any, what: str) -> np.ndarray:
    """A numpy array of an array, a tensor of torch or a list. what: its name, for errors. Raises FormatError."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):  # a tensor, without loading torch for others
        values = values.detach().cpu()
        if getattr(values, "is_sparse", False):
            values = values.to_dense()
        try:
            return values.numpy()
        except TypeError:
            return values.float().numpy()  # bfloat16, which numpy has not
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise FormatError(f"{what} cannot be made an array: {error}") from error
    if array.dtype.kind == "O" and not all(isinstance(value, (str, type(None), float)) for value in array.flat):
        raise FormatError(f"{what} must be an array of numbers (or of words), got objects of several kinds")
    return array


def mapped_files(values: Iterable[Any]) -> Iterator[str]:
    """The files that arrays, or containers of arrays, are mapped from: what is written must not take their place."""
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
        matrix = features.tocsr()
        matrix.sum_duplicates()
        return Csr(matrix.indptr.astype(np.int64), matrix.indices, matrix.data.astype(np.float32), matrix.shape[1])
    return as_array(features, "features")


def as_split(split: Any) -> dict[str, np.ndarray | None]:
    """{"train" | "val" | "test": mask or node numbers} of such a mapping, or of one word for each node."""
    if split is None:
        return {}
    if isinstance(split, Mapping):
        unknown = [name for name in split if name not in SPLIT_OF]
        if unknown:
            raise FormatError(f"split has {unknown[0]!r}; expected train, val and test")
        return {SPLIT_OF[name]: None if one is None else as_array(one, f"split {name}") for name, one in split.items()}
    words = as_array(split, "split")
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
