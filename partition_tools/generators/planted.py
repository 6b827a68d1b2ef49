"""A graph with communities, skewed degrees, and a task that its structure helps with.

The degree-corrected planted partition is the stochastic block model with degree correction (Karrer and Newman, Phys.
Rev. E 83, 2011): each node has an expected degree from a truncated power law. Each class consists of several
communities. An edge's second end is drawn in proportion to expected degree from the first one's community, class, or
the whole graph. Like real graphs it has hubs, isolated nodes and uneven parts, and METIS finds good cuts in it.

Types carry information. The first half of R edge types (rounded up) belongs to edges within a class, the rest to edges
between classes. An edge has a type of its half with a chance of 90 %. So a relational network can learn which
neighbours to trust. Types of nodes are drawn regardless of class, but each has its own class means. So features of two
types are comparable only after a projection per type.
"""

import numpy as np

from partition_tools.generators.drawing import Draw, distinct_edges, raw_graph
from partition_tools.generators.spec import Spec
from partition_tools.generators.tasks import ClassFeatures, class_targets
from partition_tools.graph.raw import RawGraph
from partition_tools.workspace.scratch import Scratch

NAME = "planted"
COMMUNITY_NODES = 500  # expected size of a community; a class has as many as that takes, at most 64
COMMUNITY_SHARE = 0.75  # of the edges within a class, those within the community
LABEL_NOISE = 0.12  # chance that a node's label is drawn anew, so that no model reaches 100 %
TYPE_SIGNAL = 0.9  # chance that an edge's type is drawn from those of its half
EXPONENT, WEIGHT_RANGE = 2.5, 200.0
ACTIVE, FLIP = 0.25, 0.05  # multi-label: chance that a community has a label, and that a node differs from it


def generate(spec: Spec, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a `Spec`. Node ids carry no locality. Memory: about 200 bytes per node, and 24 per edge drawn
    or the scratch directory's limit.
    """
    n = spec.nodes
    per_class = int(np.clip(round(n / spec.classes / COMMUNITY_NODES), 1, 64))
    shares = spec.random("classes").uniform(0.5, 1.5, spec.classes)
    bounds = np.cumsum(shares / shares.sum())
    draws = spec.blocks("classes", n + 1, lambda random, count: random.random((count, 4)))[1:]
    block = np.minimum(np.searchsorted(bounds, draws[:, 0]), spec.classes - 1)
    community = block * per_class + (draws[:, 1] * per_class).astype(np.int64)
    expected = _power_law(draws[:, 2])
    if spec.multi_label:
        labels = _label_sets(spec, community, spec.classes * per_class)
    else:
        anew = draws[:, 3] < LABEL_NOISE
        other = np.minimum(draws[:, 3] / LABEL_NOISE * spec.classes, spec.classes - 1).astype(np.int64)
        labels = np.where(anew, other, block)
    keys = distinct_edges(spec, _edge_drawer(spec, community, per_class, expected), scratch)
    node_type = None
    if spec.node_types:
        node_type = spec.blocks(
            "node_types", n, lambda random, count: random.integers(0, spec.node_types, count, np.int32)
        )
    return raw_graph(
        spec,
        NAME,
        keys,
        ClassFeatures(spec, labels, node_type),
        class_targets(spec, labels) if spec.targets else labels,
        lambda src, dst, draws: _edge_types(spec, block[src] == block[dst], draws),
        node_type,
    )


def _edge_types(spec: Spec, within: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """int32 types of edges. within: bool, whether an edge stays within a class. draws: (count, 2) uniform numbers."""
    half = (spec.edge_types + 1) // 2
    low, high = np.where(within, 0, half), np.where(within, half, spec.edge_types)
    telling = (draws[:, 0] < TYPE_SIGNAL) & (low < high)
    low, high = np.where(telling, low, 0), np.where(telling, high, spec.edge_types)
    return np.minimum(low + (draws[:, 1] * (high - low)).astype(np.int32), high - 1).astype(np.int32)


def _power_law(uniform: np.ndarray) -> np.ndarray:
    """Expected degrees (up to a factor) with density ~ w^-EXPONENT on [1, WEIGHT_RANGE], by the inverse
    distribution."""
    power = 1 - EXPONENT
    return (1 + uniform * (WEIGHT_RANGE**power - 1)) ** (1 / power)


def _edge_drawer(spec: Spec, community: np.ndarray, per_class: int, expected: np.ndarray) -> Draw:
    """The function that draws pairs: nodes lie in community order on a line, each as long as its expected degree."""
    order = np.argsort(community, kind="stable")
    line = np.concatenate([[0.0], np.cumsum(expected[order])])
    edges = line[np.searchsorted(community[order], np.arange(spec.classes * per_class + 1))]
    class_edges = edges[::per_class]
    in_order = community[order]

    def locate(points: np.ndarray) -> np.ndarray:
        return np.clip(np.searchsorted(line, points, side="right") - 1, 0, len(line) - 2)

    def draw(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        first = locate(random.random(count) * line[-1])
        home, level, point = in_order[first], random.random(count), random.random(count)
        within = level < spec.homophily
        near = level < spec.homophily * COMMUNITY_SHARE
        low = np.where(near, edges[home], np.where(within, class_edges[home // per_class], 0.0))
        high = np.where(near, edges[home + 1], np.where(within, class_edges[home // per_class + 1], line[-1]))
        second = locate(low + point * (high - low))
        if spec.directed:
            swap = random.random(count) < 0.5
            first, second = np.where(swap, second, first), np.where(swap, first, second)
        return order[first], order[second]

    return draw


def _label_sets(spec: Spec, community: np.ndarray, num_communities: int) -> np.ndarray:
    """uint8 (n, C): the labels of the node's community, each flipped with a small chance."""
    profiles = spec.random("profiles").random((num_communities, spec.classes)) < ACTIVE
    profiles[np.arange(num_communities), np.arange(num_communities) % spec.classes] = True
    draws = spec.blocks("profiles", spec.nodes + 1, lambda random, count: random.random((count, spec.classes)))
    flips = draws[1:] < FLIP
    return (profiles[community] ^ flips).astype(np.uint8)
