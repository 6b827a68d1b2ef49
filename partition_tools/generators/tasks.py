"""The learning task on a generated graph: features that carry a noisy mean of the node's classes, and a random split.

The signal of one node is weak on purpose: with the default noise a linear model on a node's own features is far from
the best. So a network does well only if its neighbours' rows arrive.
"""

import numpy as np

from partition_tools.generators.spec import BLOCK, Spec


class ClassFeatures:
    """Array-like float32 (n, F): mean of the node's class (or sum over its labels) plus Gaussian noise, unit variance.

    node_type: int (n,), or None; each type of nodes has its own means of the classes.
    """

    def __init__(self, spec: Spec, labels: np.ndarray, node_type: np.ndarray | None = None) -> None:
        self.spec, self.labels, self.node_type = spec, labels, node_type
        self.shape, self.dtype = (spec.nodes, spec.features), np.dtype(np.float32)
        shape = (max(spec.node_types, 1), spec.classes, spec.features)
        means = spec.random("means").standard_normal(shape, dtype=np.float32)
        if labels.ndim == 2:
            means /= max(1.0, float(labels[:BLOCK].sum(axis=1).mean())) ** 0.5
        self.means = means

    def _block(self, block: int) -> np.ndarray:
        there = slice(block * BLOCK, (block + 1) * BLOCK)
        labels = self.labels[there]
        kinds = np.zeros(len(labels), np.int32) if self.node_type is None else self.node_type[there]
        rows = self.spec.random("features", block).standard_normal((len(labels), self.shape[1]), dtype=np.float32)
        rows *= np.float32(self.spec.noise)
        if labels.ndim == 1:
            rows += self.means[kinds, labels]
        else:
            for kind in np.unique(kinds):
                rows[kinds == kind] += labels[kinds == kind].astype(np.float32) @ self.means[kind]
        rows /= np.float32((1 + self.spec.noise**2) ** 0.5)
        return rows

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        out = np.empty((max(stop - start, 0), self.shape[1]), np.float32)
        for block in range(start // BLOCK, -(-stop // BLOCK) if stop > start else 0):
            first, last = max(start, block * BLOCK), min(stop, (block + 1) * BLOCK)
            out[first - start : last - start] = self._block(block)[first - block * BLOCK : last - block * BLOCK]
        return out


def class_targets(spec: Spec, classes: np.ndarray) -> np.ndarray:
    """float32 (n, T) of real numbers to predict: a mean of the node's class (n,), and noise.

    The noise makes a third of their variance. They are around 50, with a deviation of about 10.
    """
    means = spec.random("targets").standard_normal((spec.classes, spec.targets), np.float32)

    def draw(random: np.random.Generator, count: int) -> np.ndarray:
        return random.standard_normal((count, spec.targets), np.float32)

    noise = spec.blocks("targets", spec.nodes + BLOCK, draw)[BLOCK:]
    return np.float32(50) + np.float32(8) * (means[classes] + np.float32(0.7) * noise)


def random_split(spec: Spec) -> dict[str, np.ndarray]:
    """{"train", "val", "test": bool (n,)}: exact fractions, at random."""
    order = spec.random("split").permutation(spec.nodes)
    stops = np.rint(np.cumsum([spec.train, spec.val]) * spec.nodes).astype(np.int64)
    split = {}
    for name, members in zip(("train", "val", "test"), np.split(order, stops), strict=True):
        split[name] = np.zeros(spec.nodes, bool)
        split[name][members] = True
    return split
