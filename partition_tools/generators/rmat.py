"""R-MAT, the recursive matrix model of Graph500: very skewed degrees, hardly any good cut, so the hard case of
partitioning.

Chakrabarti, Zhan, Faloutsos, "R-MAT: A Recursive Model for Graph Mining", SDM 2004; the default quadrant probabilities
are Graph500's. For n nodes the matrix has 2^ceil(log2 n) rows, and edges that touch a row from n up are drawn again, so
n is exact. Unlike Graph500, self loops and duplicates are dropped, and duplicates drawn again. Node ids are permuted.
Classes are runs of rows before the permutation, so neighbours agree only weakly; most of the signal is in the node's
own features.
"""

import argparse

import numpy as np

from partition_tools.external.scratch import Scratch
from partition_tools.generators.drawing import distinct_edges, raw_graph
from partition_tools.generators.spec import Spec
from partition_tools.generators.tasks import ClassFeatures, random_split
from partition_tools.progress import Reporter
from partition_tools.raw import RawGraph

NAME = "rmat"


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of this model alone."""
    for name, default in (("a", 0.57), ("b", 0.19), ("c", 0.19)):
        parser.add_argument(
            f"--{name}",
            type=float,
            default=default,
            metavar="P",
            help=f"R-MAT quadrant probability {name} (default {default}; d is the rest)",
        )


def generate(spec: Spec, scratch: Scratch | None = None, reporter: Reporter | None = None) -> RawGraph:
    """The `RawGraph` of a `Spec`. Memory: 24 bytes per node, and 24 per edge drawn or what the scratch directory
    allows.
    """
    n = spec.nodes
    place = spec.random("classes").permutation(n)
    row_of = np.empty(n, np.int64)
    row_of[place] = np.arange(n)
    labels = row_of * spec.classes // n
    if spec.multi_label:
        flips = spec.blocks("profiles", n, lambda random, count: random.random((count, spec.classes))) < 0.05
        labels = ((labels[:, None] == np.arange(spec.classes)) ^ flips).astype(np.uint8)
    levels = max(int(n - 1).bit_length(), 1)

    def draw(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        src, dst = _descend(spec, random, count, levels)
        inside = (src < n) & (dst < n)
        return place[src[inside]], place[dst[inside]]

    keys = distinct_edges(spec, draw, scratch, reporter)
    return raw_graph(spec, NAME, keys, ClassFeatures(spec, labels), labels, random_split(spec))


def _descend(spec: Spec, random: np.random.Generator, count: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) int64 (count,): one quadrant of the remaining square chosen per level."""
    src, dst = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for _ in range(levels):
        point = random.random(count)
        lower = point >= spec.a + spec.b
        right = ((point >= spec.a) & ~lower) | (point >= spec.a + spec.b + spec.c)
        src, dst = 2 * src + lower, 2 * dst + right
    return src, dst
