"""The description of a model, as plain values."""

from dataclasses import dataclass, field
from typing import Any

import torch

from hpcgnn.options.inputs import inputs_of

#: Of fields that follow from the model: checkpoints need not hold them.
DERIVED = {"derived": True}


@dataclass(frozen=True)
class ModelSpec:
    """The values that decide a model's parameters and arithmetic; stored in checkpoints and compared on resume.

    Attributes:
        input_dropout: 'aggregate' drops elements of the kept aggregate. 'scaled' does too, with the noise of a mean of
            rows (ops/dropout.py). 'raw' drops elements of the features (with one exchange per epoch if they are dense),
            and 'none' drops none there. The default here is that of the oldest checkpoints, not the option's.
        constant_input: whether the first layer's aggregate of the features has no parameters in it, so that it can be
            kept.
        loop_relation: whether added self loops are a relation of their own, the last one (rgcn and rgat with
            --self-loops add).
        hidden_bias: whether hidden layers add a bias; it is of no use before a batch norm (nn/norm.py).
        dtype: type of parameters and arithmetic.
        kept: type of the outputs and messages of hidden layers (None: the same).
        inputs: the text of `inputs_text`.
        edge_features: number of edge feature columns that the model reads.
        linear_residual: whether each layer adds a linear map of its input.
        keep: 'exact' or 'int8': what layers keep for the gradient.
        stacked: whether each layer has a map of its own.
        facts: (name, value) of the graph file, of the model's entry.
        same_edges: whether all epochs train on the same edges.
        held: type of the dense features in memory, if it is narrower than `dtype`; else None.
    """

    model: str
    d_in: int
    classes: int
    layers: int
    hidden: int
    dropout: float = 0.0
    norm: str = "none"
    residual: bool = False
    input_dropout: str = "aggregate"
    keep_input: str = "auto"
    sparse_input: bool = False
    heads: int = 1
    out_heads: int = 1
    attention_dropout: float = 0.0
    bases: int = 4
    weighted: bool = False
    edge_types: int = 0
    loop_relation: bool = False
    node_types: int = 0
    hops: int = 10
    teleport: float = 0.1
    jumping: str = "none"
    constant_input: bool = True
    hidden_bias: bool = True
    dtype: torch.dtype = torch.float32
    kept: torch.dtype | None = None
    inputs: str = "file"
    edge_features: int = 0
    linear_residual: bool = False
    keep: str = field(default="exact", metadata=DERIVED)
    stacked: bool = field(default=True, metadata=DERIVED)
    facts: tuple[tuple[str, Any], ...] = field(default=(), metadata=DERIVED)
    same_edges: bool = field(default=True, metadata=DERIVED)
    held: torch.dtype | None = field(default=None, metadata=DERIVED)

    @property
    def learned(self) -> int:
        """How many of the d_in columns are learned: the last ones."""
        return inputs_of(self.inputs).learned

    @property
    def changing(self) -> int:
        """How many of the d_in columns change from step to step: the last ones."""
        return inputs_of(self.inputs).changing_columns(self.classes)

    @property
    def widths(self) -> tuple[int, ...]:
        """Input and output widths of the layers: (d_in, hidden, …, classes), or hidden ones to the end where a map
        comes after them.
        """
        last = self.classes if self.jumping == "none" else self.hidden
        return (self.d_in, *[self.hidden] * (self.layers - 1), last)

    @property
    def first_width(self) -> int:
        """Columns of the rows that the first map makes."""
        return self.widths[1] if self.stacked else self.classes

    @property
    def aggregate(self) -> torch.dtype:
        """Type of the kept aggregate."""
        return self.kept or self.dtype

    @property
    def keeps_input(self) -> bool:
        """Whether the features are aggregated once and the result is kept for the whole run.

        It pays where they are dense and not much wider than the first layer's output; else they are transformed first.
        It changes from step to step where the edges do.
        """
        if self.sparse_input or self.input_dropout == "raw" or not (self.constant_input and self.same_edges):
            return False
        return self.keep_input == "always" or (self.keep_input == "auto" and self.d_in <= 2 * self.first_width)


#: What a layer takes its options from that is made by itself, and not by a model: the defaults.
PLAIN = ModelSpec(model="", d_in=0, classes=0, layers=1, hidden=0)
