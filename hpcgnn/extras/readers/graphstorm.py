"""What GraphStorm's construction of graphs says of a folder: which arrays of a node type are features, labels, masks.

It writes them by their names of columns and tasks, and leaves data_transform_new.json beside the partitions.
"""

import json
from pathlib import Path
from typing import Any

from hpcgnn.errors import FormatError
from partition_tools.workspace.progress import Reporter

FILE = "data_transform_new.json"
_MASKS = ("train_mask", "val_mask", "test_mask")


def meanings(folder: Path, reporter: Reporter) -> dict[str, dict[str, str]]:
    """{node type: {name of an array: the name that readers know}}; {} for a folder without that file.

    All features of a type are called feat. A type with labels of several tasks has no labels, and a warning says so.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        nodes = json.loads(path.read_text(encoding="utf-8"))["nodes"]
        return {kind: _of_type(kind, nodes, reporter) for kind in dict.fromkeys(each["node_type"] for each in nodes)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path}: expected nodes with node_type, features and labels, as GraphStorm writes it ({error!r}); without "
            "this file --set arrays.rename=OLD=NEW says which arrays are label and feat"
        ) from error


def _of_type(kind: str, nodes: list[dict[str, Any]], reporter: Reporter) -> dict[str, str]:
    """The meanings in all entries of a type: GraphStorm allows several."""
    entries = [each for each in nodes if each["node_type"] == kind]
    features = [feature for each in entries for feature in each.get("features", ())]
    labels = [label for each in entries for label in each.get("labels", ()) if "label_col" in label]
    found: dict[str, str] = {}
    for feature in features:
        columns = feature.get("feature_name", feature.get("feature_col"))
        found |= dict.fromkeys([columns] if isinstance(columns, str) else columns, "feat")
    masks = [label.get("mask_field_names", _MASKS) for label in labels]
    if len(labels) == 1:
        found |= {labels[0]["label_col"]: "label"} | dict(zip(masks[0], _MASKS, strict=True))
    elif labels:
        first = ",".join(
            f"{old}={new}" for old, new in zip((labels[0]["label_col"], *masks[0]), ("label", *_MASKS), strict=True)
        )
        others = ",".join(
            dict.fromkeys(name for label, of in zip(labels, masks, strict=True) for name in (label["label_col"], *of))
        )
        reporter.warn(
            f"{kind} has labels of {len(labels)} tasks ({', '.join(label['label_col'] for label in labels)}), and none "
            f"is read; --set arrays.rename={first} takes the first, and arrays.ignore leaves out the others ({others})"
        )
    return found
