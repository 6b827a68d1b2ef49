"""Held-out edges and their negative pairs, counted from the graph file.

The counts are pairs by the rank of their target, and rows that stream along them (see graph/held_out.py and
graph/given_pairs.py).
"""

from collections.abc import Iterator

import numpy as np

from hpcgnn.config import Config
from hpcgnn.estimate.counts.halo_counts import HaloCounts, PairCounts
from hpcgnn.estimate.counts.shares import Counter, Taken
from hpcgnn.graph.given_pairs import PairReader
from hpcgnn.graph.held_out import LinkSplit
from hpcgnn.graph.load import read_original_id
from hpcgnn.graphfile.given_links import EACH, EDGES, HELD, NEGATIVES, NONE, SHARED, TARGETS, name_of
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.placement.ownership import Ownership
from hpcgnn.tasks.link_training import link_split

# Pairs that are read at a time.
_PIECE = 1 << 20
#: The names of a split's negatives, and of its pairs with their ends exchanged.
NEGATIVE, TURNED = "negatives of {}", "known of {}"


def sides_of(config: Config, file: GraphFile) -> list[Taken] | None:
    """Which edges are on the sides of training, validation and test, where a run draws them; else None. config:
    resolved. It takes eight bytes for each node of the graph. Raises FormatError for damage.
    """
    split = link_split(config)
    if not isinstance(split, LinkSplit):
        return None
    nodes = file.meta.num_nodes
    ids = read_original_id(file, [(0, nodes)]).numpy()

    def side(number: int) -> Taken:
        return lambda ends, others: split.sides(ids[ends], ids[others], nodes) == number

    return [side(number) for number in range(1 + len(HELD))]


def drawn_pairs(counter: Counter, sides: list[Taken]) -> dict[str, PairCounts]:
    """{split: its edges}. counter: of all edges."""
    found = {}
    for split, taken in zip(HELD, sides[1:], strict=False):
        shares = counter.taking(taken).shares()
        found[split] = PairCounts(shares.own, shares.remote, shares.inward)
    return found


def given_pairs(file: GraphFile, ownership: Ownership, ranks: int) -> dict[str, PairCounts]:
    """Return {split, or name of its negatives: the pairs} from the file. Raises FormatError for damage."""
    nodes = file.meta.num_nodes
    place = np.empty(nodes, np.int64)
    place[read_original_id(file, [(0, nodes)]).numpy()] = np.arange(nodes)
    found, against = {}, {SHARED: NEGATIVES, EACH: TARGETS}.get(file.meta.negatives)
    for split in HELD:
        kinds = [(split, EDGES, False)]
        if against is not None:
            kinds.append((NEGATIVE.format(split), against, False))
        if file.meta.negatives == NONE and file.meta.undirected:
            kinds.append((TURNED.format(split), EDGES, True))
        for name, part, turned in kinds:
            pairs = ((place[source], place[target]) for source, target in _read(file, split, part, turned))
            found[name] = _counted(pairs, ownership, ranks, nodes)
    return found


def _read(file: GraphFile, split: str, part: str, turned: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(sources, targets) int64 (m,), original ids, some at a time. turned: with their ends exchanged."""
    if name_of(split, part) not in file:
        return
    (rows, width), reader = file.shape(name_of(split, part)), PairReader(file)
    read = reader.targets(split, width) if part == TARGETS else reader.pairs(split, part, turned)
    step = max(1, _PIECE // max(1, width))
    for first in range(0, rows, step):
        source, target, _ = read(first, min(rows, first + step))
        yield source, target


def _counted(
    pairs: Iterator[tuple[np.ndarray, np.ndarray]], ownership: Ownership, ranks: int, nodes: int
) -> PairCounts:
    """pairs: (sources, targets) in the order of the file."""
    own, remote, wanted = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64), np.zeros(0, np.int64)
    for source, target in pairs:
        sender, receiver = (ownership.locate(each)[0].astype(np.int64) for each in (source, target))
        away = sender != receiver
        own += np.bincount(receiver[~away], minlength=ranks)
        remote += np.bincount(receiver[away], minlength=ranks)
        wanted = np.union1d(wanted, receiver[away] * nodes + source[away])
    receiver, source = np.divmod(wanted, nodes)
    sender = ownership.locate(source)[0].astype(np.int64)
    keys, rows = np.unique(receiver * ranks + (receiver - sender) % ranks, return_counts=True)
    return PairCounts(own, remote, HaloCounts(ranks, keys // ranks, keys % ranks, rows.astype(np.int64)))
