"""Arrays under the names that readers know: --rename OLD=NEW."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.arrays.archives import Arrays


def refuse_unknown(what: object, names: Mapping[str, str], there: Sequence[str]) -> None:
    """FormatError if an array to rename is not there, or has a new name that is taken."""
    for old, new in names.items():
        if old not in there:
            raise FormatError(f"{what} has no array {old} to --rename; it has {', '.join(there)}")
        if new in there and new not in names:
            raise FormatError(
                f"{what} holds {new}, and {old} cannot have its name; rename both: --rename {new}=other,{old}={new}"
            )


class Renamed:
    """Arrays of an archive, some under other names. Raises FormatError."""

    def __init__(self, archive: Arrays, names: Mapping[str, str]) -> None:
        refuse_unknown(archive.path, names, archive.files)
        self.path, self._archive = archive.path, archive
        self._old = {names.get(old, old): old for old in archive.files}
        self.files = list(self._old)

    def array(self, name: str) -> np.ndarray | None:
        """One array, or None if it is not there."""
        return self._archive.array(self._old[name]) if name in self._old else None


def joined_columns(rows: Mapping[str, np.ndarray], names: Mapping[str, str]) -> dict[str, Any]:
    """{name: array} under new names. The columns of arrays that get one name follow one another as in `names`."""
    found: dict[str, list[np.ndarray]] = {}
    for old in [*(name for name in names if name in rows), *(name for name in rows if name not in names)]:
        found.setdefault(names.get(old, old), []).append(rows[old])
    return {
        name: arrays[0] if len(arrays) == 1 else np.concatenate([each.reshape(len(each), -1) for each in arrays], 1)
        for name, arrays in found.items()
    }
