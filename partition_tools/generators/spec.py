"""Common parts of all generated graphs: their size, their task, and the source of their randomness.

Random numbers are drawn in blocks of a fixed size, each from a generator seeded by (seed, purpose, block). So the graph
is a function of the parameters alone; the order and the size of slabs do not matter. Features of any size are made
while they are written, and never held.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hpcgnn.errors import ConfigError

BLOCK = 1 << 16
PURPOSES = ("classes", "edges", "features", "means", "split", "weights", "types", "profiles", "node_types", "targets")


def option(default: Any, help: str, model: str = "", read: Callable[[str], Any] | None = None) -> Any:
    """A field with an option of `generate`: of all models, or of one. read: a value from its text, or ValueError."""
    return field(default=default, metadata={"help": help, "model": model, "read": read})


@dataclass(frozen=True)
class Spec:
    """Parameters of a generated graph. The rest of `train` and `val` is the test split."""

    nodes: int = field(metadata={"help": "number of nodes"})
    degree: float = field(metadata={"help": "mean number of in-edges of a node (undirected: counted at both ends)"})
    features: int = field(metadata={"help": "number of features"})
    classes: int = field(metadata={"help": "number of classes"})
    seed: int = option(0, "seed")
    homophily: float = option(0.7, "chance that an edge stays within a class; the rest goes anywhere", "planted")
    noise: float = option(5.0, "feature noise against class means of deviation 1")
    multi_label: bool = option(False, "C independent 0/1 labels per node")
    directed: bool = option(False, "each edge in one direction only")
    weighted: bool = option(False, "edge weights from 0.5 to 1.5")
    edge_types: int = option(0, "number of edge types")
    train: float = option(0.5, "training fraction")
    val: float = option(0.2, "validation fraction; the rest is the test split")
    a: float = option(0.57, "quadrant probability a", "rmat")
    b: float = option(0.19, "quadrant probability b", "rmat")
    c: float = option(0.19, "quadrant probability c (d is the rest)", "rmat")
    node_types: int = option(0, "number of node types, each with class means of its own", "planted")
    targets: int = option(0, "real numbers per node to predict (regression), which depend on its class, in its place")

    def __post_init__(self) -> None:
        possible = self.nodes - 1
        for name, good, range_ in (
            ("nodes", self.nodes >= 1, "at least 1"),
            ("features", self.features >= 0, "at least 0"),
            ("classes", self.classes >= 1, "at least 1"),
            ("seed", 0 <= self.seed < 2**63, "from 0 to 2^63 - 1"),
            ("degree", 0 <= self.degree <= max(possible / 2, 0), f"from 0 to half the other nodes ({possible / 2:g})"),
            ("homophily", 0 <= self.homophily <= 1, "from 0 to 1"),
            ("noise", self.noise >= 0, "at least 0"),
            ("edge_types", self.edge_types >= 0, "at least 0"),
            ("node_types", self.node_types >= 0, "at least 0"),
            ("targets", self.targets >= 0 and not (self.targets and self.multi_label), "0 with --multi-label, or more"),
            ("train", 0 <= self.train <= 1, "from 0 to 1"),
            ("val", 0 <= self.val <= 1 - self.train + 1e-9, "from 0 to 1 - train"),
            ("a", min(self.a, self.b, self.c) >= 0 and self.a + self.b + self.c <= 1, "a, b, c >= 0 with sum <= 1"),
        ):
            if not good:
                raise ConfigError(f"{name} must be {range_}, got {getattr(self, name)}")

    @property
    def num_edges(self) -> int:
        """Distinct edges to draw: each is one directed edge, or both directions of an undirected one."""
        return round(self.nodes * self.degree / (1 if self.directed else 2))

    def random(self, purpose: str, block: int = 0) -> np.random.Generator:
        """The numpy Generator of one block of one purpose."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, PURPOSES.index(purpose), block])))

    def blocks(self, purpose: str, count: int, draw: Callable[[np.random.Generator, int], np.ndarray]) -> np.ndarray:
        """One array of `count` rows: draw(random generator, rows) for each block, joined."""
        return self.some(purpose, count, 0, count, draw)

    def some(
        self, purpose: str, count: int, start: int, stop: int, draw: Callable[[np.random.Generator, int], np.ndarray]
    ) -> np.ndarray:
        """The rows start … stop of the result of `blocks`."""
        first = start // BLOCK
        parts = [
            draw(self.random(purpose, block), min(BLOCK, count - block * BLOCK))
            for block in range(first, -(-stop // BLOCK))
        ]
        drawn = np.concatenate(parts) if parts else draw(self.random(purpose), 0)
        return drawn[start - first * BLOCK : stop - first * BLOCK]

    def identity(self, model: str) -> bytes:
        """Bytes that tell this graph's features from any other's."""
        parameters = asdict(self)
        for younger in ("node_types", "targets"):  # than the names of graphs without, which stay what they were
            if not parameters[younger]:
                del parameters[younger]
        return repr((model, 1, sorted(parameters.items()))).encode()
