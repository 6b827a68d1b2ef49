"""Traits: the needs and abilities of layers, schedules, transports and tasks.

Each class or module declares its traits beside its code. plan/ reads them and decides which go together. No other
file compares names of models, schedules or tasks.
"""

from dataclasses import dataclass
from typing import Any, Literal

#: How rows of neighbours enter a layer:
#:   any: in a way about which nothing is known;
#:   sums: as sums with factors that do not change, before or after the product with the weights;
#:   products: as products with weights, never as they are;
#:   hops: as such sums of the last layer's outputs;
#:   none: not at all.
Neighbours = Literal["any", "sums", "products", "hops", "none"]
#: What a layer does with its input:
#:   rows: anything;
#:   product: only `x @ weight`, or only that where it narrows the input and keeps no aggregate;
#:   tiles: it reads a constant one some rows at a time (ConstantRows).
InputUse = Literal["rows", "product", "tiles"]


@dataclass(frozen=True)
class LayerTraits:
    """Needs and abilities of a layer. The defaults are for a layer about which nothing is known.

    Attributes:
        self_loops: 'add' or 'keep', the meaning of `--self-loops auto`.
        neighbours: how rows of neighbours enter the layer.
        edges: what the layer reads of edges besides their ends: their 'weights', 'types', 'features' if there are any,
            or 'all' that they carry; and 'positions' of the ends.
        prunable: the layer can compute some of its rows only (graph/transforms/pruning.py).
        reads_self: the layer reads a node's own row besides the aggregate.
        input: what the layer does with its input.
        activation: operator class of the activation that the layer applies to a Handover, or None.
        codes: the gradients are linear in what the layer keeps of numbers, apart from zeros and signs, or smooth
            (`--keep int8`).
    """

    self_loops: str = "keep"
    neighbours: Neighbours = "any"
    edges: tuple[str, ...] = ("weights",)
    prunable: bool = False
    reads_self: bool = True
    input: InputUse = "rows"
    activation: Any = None
    codes: bool = False

    @property
    def fixed_sums(self) -> bool:
        """Whether the layer makes only sums of neighbours' rows, with factors that do not change."""
        return self.neighbours in ("sums", "hops")

    @property
    def mixed_precision(self) -> bool:
        """Whether the layer is one linear operator, which has kernels for `--precision mixed`."""
        return self.neighbours == "sums" and self.input == "tiles"

    @property
    def relational(self) -> bool:
        """Whether the layer has weights for each type of edge."""
        return "types" in self.edges


@dataclass(frozen=True)
class ScheduleTraits:
    """Abilities of a schedule. The defaults allow least.

    Attributes:
        exact_epochs: every step sees all rows of all neighbours, as they are now.
        changing_input: the input may change from step to step (learned features, labels as inputs).
        layer_by_layer: layers are trained one by one, on input that is sent once.
        partial_sums: ranks may send sums of rows: 'always', 'never', or 'dense': of dense features, dropped after the
            sum.
        within_memory: the schedule keeps no rows of other ranks from step to step, so a limit of memory can hold.
        pairwise: two ranks exchange messages while the others do something else.
        narrows_rows: training can exchange rows in `--halo-dtype`.
    """

    exact_epochs: bool = False
    changing_input: bool = False
    layer_by_layer: bool = False
    partial_sums: Literal["always", "dense", "never"] = "never"
    within_memory: bool = False
    pairwise: bool = False
    narrows_rows: bool = False


@dataclass(frozen=True)
class TransportTraits:
    """Abilities of a transport.

    Attributes:
        pairwise: one rank can send to another while the others do something else.
        node_memory: ranks of a node can map each other's memory.
    """

    pairwise: bool = True
    node_memory: bool = False


@dataclass(frozen=True)
class TaskTraits:
    """Needs of a task.

    Attributes:
        labels: the task is learned from labels of nodes.
        all_rows: the loss reads outputs of all nodes, not of training nodes alone.
        embeds: the outputs of the model are embeddings of `--hidden` columns, not one column per class.
        reads_on: the task reads rows of the graph file in every step.
    """

    labels: bool = True
    all_rows: bool = False
    embeds: bool = False
    reads_on: bool = False
