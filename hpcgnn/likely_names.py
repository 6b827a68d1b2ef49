"""The name that was probably meant by one that does not exist: a value of an option, a command, a file of a folder."""

import difflib
import os
from collections.abc import Iterable, Mapping
from itertools import islice

# How alike two spellings must be; "trian" and "train" are 0.8, "gen" and "gcn" 0.67.
_ALIKE = 0.75
# Files of a folder that are compared with one that is not there.
_MANY = 1000
_NAMES = {
    "batch": "batchnorm bn",
    "classification": "node-classification",
    "edgelist": "csv tsv txt parquet edges",
    "fp32": "float32 float single",
    "fp64": "float64 double",
    "gcn": "graphconv",
    "layer": "layernorm ln",
    "links": "link-prediction",
    "meshgraphnet": "mgn",
    "mixed": "fp16 bf16 amp half float16 bfloat16",
    "random-nodes": "random hash",
    "ranks": "parts nparts num-parts n-parts",
    "sage": "graphsage",
    "sar": "full full-batch",
    "sgc": "sgconv",
    "torch": "pytorch pt",
    "transformer": "graphtransformer graph-transformer gt",
}
# {name in another program: ours}
_MEANINGS = {name: meant for meant, names in _NAMES.items() for name in names.split()}


def likely(given: str, known: Iterable[str], meanings: Mapping[str, str] = _MEANINGS) -> str | None:
    """The name among `known` that was probably meant: by its capitals, by meaning, by spelling, else None.

    meanings: {name in another program, with dashes: ours}.
    """
    spelled = {name.lower().replace("_", "-"): name for name in known}
    name = given.lower().replace("_", "-")
    dashes = name[: len(name) - len(name.lstrip("-"))]
    for each in (name, dashes + meanings.get(name.lstrip("-"), ""), name.removesuffix("conv")):  # SAGEConv
        if each in spelled:
            return spelled[each]
    begun = [each for each in spelled if len(name) > 2 and each.startswith(name)]
    close = begun if len(begun) == 1 else difflib.get_close_matches(name, spelled, 1, _ALIKE)
    return spelled[close[0]] if close else None


def perhaps(given: str, known: Iterable[str]) -> str:
    """`likely` as the end of a message, or nothing."""
    name = likely(given, known)
    return f"; {name} perhaps" if name else ""


def file_beside(path: str | os.PathLike[str]) -> str:
    """The end of a message about a path where nothing is: the most similar name of the folder, or nothing."""
    folder, name = os.path.split(os.path.normpath(path))
    if os.path.lexists(path):
        return ""
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in islice(entries, _MANY)]
    except OSError:
        return f"; there is no directory {folder}"
    close = difflib.get_close_matches(name, names, 1, _ALIKE)
    return f"; {os.path.join(folder, close[0])} perhaps" if close else ""
