"""Published data sets by their names."""

import difflib
import re
from pathlib import Path

from tabulate import tabulate

from hpcgnn.errors import ConfigError
from partition_tools.readers.datasets import ogb
from partition_tools.readers.datasets.dataset import Dataset

DATASETS = {each.name: each for each in ogb.DATASETS}
#: Names of earlier versions, whose files three lines read.
REMOVED = re.compile("(reddit$|igb-|com-|soc-|cit-|web-|wiki-|roadnet-|twitter-).*")


def named(name: str) -> Dataset:
    """The data set of this name, in any case; ConfigError with the nearest name for one that is not known."""
    known = {each.lower(): each for each in DATASETS}
    if name.lower() in known:
        return DATASETS[known[name.lower()]]
    if REMOVED.fullmatch(name.lower()):
        raise ConfigError(f"--dataset {name} is gone; docs/datasets.md has the recipe of its files, in three lines")
    near = difflib.get_close_matches(name.lower(), known, 1)
    hint = f"did you mean {known[near[0]]}? " if near else ""
    raise ConfigError(f"unknown data set {name!r}: {hint}--dataset list shows all names")


def listing() -> str:
    """All data sets as a table in text."""
    rows = [
        (
            each.name,
            f"{each.nodes:,}",
            f"{each.edges:,}",
            each.split,
            "reverse edges are added" if each.undirected else f"usual: {each.usual}" if each.usual else "",
            str(Path(each.places[0]) / each.files[0]),
        )
        for each in DATASETS.values()
    ]
    heads = ("name", "nodes", "edges", "split", "options", "one of the files below --root")
    return tabulate(rows, heads, "plain", colalign=("left", "right", "right"))
