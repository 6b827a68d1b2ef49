"""Facts of graphstorm.tgz: a folder that GraphStorm 0.5.1 constructed and partitioned, over DGL 2.1.0.

The ids of papers and authors are words: p0, p7, … and a0, a3, …. The first feature of a node is its number, and one
part has one author. The program that made it is in the repository's history, in this file.
"""

from pathlib import Path

import numpy as np

ARCHIVE = Path(__file__).with_name("graphstorm.tgz")
PAPERS, AUTHORS = 14, 9
SOURCES = {"cites": (1, 40, PAPERS), "writes": (2, 20, AUTHORS)}


def ends(relation):
    """The numbers of the ends of a relation's edges, to papers."""
    first, count, sources = SOURCES[relation]
    edge = np.arange(count)
    return (7 * edge + first) % sources, (3 * edge * edge + edge // sources) % PAPERS


def word(kind, number):
    """The id of a node."""
    return f"p{7 * number}" if kind == "paper" else f"a{3 * number}"
