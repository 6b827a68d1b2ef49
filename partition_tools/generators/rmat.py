"""R-MAT, the recursive matrix model of Graph500, with very skewed degrees and hardly any good cut.

Chakrabarti, Zhan, Faloutsos, "R-MAT: A Recursive Model for Graph Mining", SDM 2004; the default quadrant probabilities
are Graph500's. For n nodes the matrix has 2^ceil(log2 n) rows. Edges that touch a row from n up are drawn again, so n
is exact. Unlike Graph500, self loops and duplicates are dropped, and duplicates drawn again. Node ids are permuted.
Classes are runs of rows before the permutation, so neighbours agree only weakly; most of the signal is in the node's
own features.
"""

import numpy as np

from partition_tools.generators.drawing import Draw, distinct_edges, raw_graph
from partition_tools.generators.spec import Spec
from partition_tools.generators.tasks import ClassFeatures, class_targets
from partition_tools.graph.raw import RawGraph
from partition_tools.workspace.scratch import Scratch

NAME = "rmat"


def generate(spec: Spec, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a `Spec`. Memory: 24 bytes per node, and 24 per edge drawn or the scratch directory's limit."""
    draw, labels = edge_drawer(spec)
    if spec.multi_label:
        flips = spec.blocks("profiles", spec.nodes, lambda random, count: random.random((count, spec.classes))) < 0.05
        labels = ((labels[:, None] == np.arange(spec.classes)) ^ flips).astype(np.uint8)
    given = class_targets(spec, labels) if spec.targets else labels
    keys = distinct_edges(spec, draw, scratch)
    return raw_graph(spec, NAME, keys, ClassFeatures(spec, labels), given)


def edge_drawer(spec: Spec) -> tuple[Draw, np.ndarray]:
    """(the function that draws pairs, the class of each node int64 (n,)). Pairs that touch a row from n up are left
    out."""
    n = spec.nodes
    place = spec.random("classes").permutation(n)
    row_of = np.empty(n, np.int64)
    row_of[place] = np.arange(n)
    levels = max(int(n - 1).bit_length(), 1)

    def draw(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        src, dst = _descend(spec, random, count, levels)
        inside = (src < n) & (dst < n)
        return place[src[inside]], place[dst[inside]]

    return draw, row_of * spec.classes // n


def _descend(spec: Spec, random: np.random.Generator, count: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) int64 (count,): one quadrant of the remaining square chosen per level."""
    bounds = spec.a, spec.a + spec.b, spec.a + spec.b + spec.c
    src, dst = np.zeros(count, np.uint32), np.zeros(count, np.uint32)  # check_count allows no more than 32 levels
    for _ in range(levels):
        point = random.random(count)
        quadrant = sum((point >= bound).view(np.uint8) for bound in bounds)  # 0: upper left … 3: lower right
        src <<= 1
        src += quadrant >> 1
        dst <<= 1
        dst += quadrant & 1
    return src.astype(np.int64), dst.astype(np.int64)
