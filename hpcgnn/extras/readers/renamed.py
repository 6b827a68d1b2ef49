"""Arrays of DGL under the names that our readers know, and arrays.rename=OLD=NEW."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError

#: Names of features and labels in folders of DGL, SAR and GraphStorm.
FEATURES, LABELS = ("feat", "features", "x"), ("label", "labels", "y")
#: What DGL itself keeps on nodes and edges, by names that begin like these.
_OF_DGL = ("_ID", "_TYPE")
_EDGE_DATA = {
    **dict.fromkeys(("w", "weight"), "edge_weight"),
    **dict.fromkeys(("type", "etype", "rel_type"), "edge_type"),
    "feat": "edge_attr",
}
NODE_DATA = {"features": "feat", "labels": "label"}


def refuse_unknown(what: object, names: Mapping[str, str], there: Sequence[str]) -> None:
    """FormatError if an array to rename is not there, or has a new name that is taken."""
    for old, new in names.items():
        if old not in there:
            raise FormatError(f"{what} has no array {old} to rename; it has {', '.join(there)}")
        if new in there and new not in names:
            raise FormatError(
                f"{what} holds {new}, and {old} cannot have its name; say arrays.rename={new}=other,{old}={new}"
            )


def joined_columns(rows: Mapping[str, np.ndarray], names: Mapping[str, str]) -> dict[str, Any]:
    """{name: array} under new names. The columns of arrays that get one name follow one another as in `names`."""
    found: dict[str, list[np.ndarray]] = {}
    for old in [*(name for name in names if name in rows), *(name for name in rows if name not in names)]:
        found.setdefault(names.get(old, old), []).append(rows[old])
    return {
        name: arrays[0] if len(arrays) == 1 else np.concatenate([each.reshape(len(each), -1) for each in arrays], 1)
        for name, arrays in found.items()
    }


def of_dgl(data: Mapping[str, Any], of_edges: bool = False) -> dict[str, Any]:
    """The user's data on nodes or edges, by the names that our readers know."""
    return {
        _EDGE_DATA.get(name, f"edge_{name}") if of_edges else NODE_DATA.get(name, name): value
        for name, value in data.items()
        if not name.startswith(_OF_DGL)
    } | ({} if of_edges or "_ID" not in data else {"n_id": data["_ID"]})
