"""The description of a model: its options, and what the graph and the run decide about it."""

from dataclasses import dataclass, field, fields
from typing import Any

import torch

from hpcgnn.options.inputs import inputs_of
from hpcgnn.options.model import ModelConfig

#: Of fields that follow from the model: checkpoints need not hold them.
DERIVED = {"derived": True}
#: Options that checkpoints hold. Of a plugin they hold the code, and config.toml holds those that must stay.
_OPTIONS = [each.name for each in fields(ModelConfig) if each.name != "plugin" and each.metadata["on_resume"] != "same"]


@dataclass(frozen=True)
class ModelSpec:
    """The values that decide a model's parameters and arithmetic.

    Attributes:
        options: the section [model] of the configuration.
        constant_input: whether the first layer's aggregate of the features has no parameters in it, so that it can be
            kept.
        loop_relation: whether added self loops are a relation of their own, the last one (rgcn and rgat with
            --self-loops add).
        hidden_bias: whether hidden layers add a bias; it is of no use before a batch norm (nn/norm.py).
        dtype: type of parameters and arithmetic.
        kept: type of the outputs and messages of hidden layers (None: the same).
        inputs: the text of `inputs_text`.
        edge_features: number of edge feature columns that the model reads.
        stacked: whether each layer has a map of its own.
        facts: (name, value) of the graph file, of the model's entry.
        same_edges: whether all epochs train on the same edges.
        held: type of the dense features in memory, if it is narrower than `dtype`; else None.
        given: how many of the d_in columns the task gives anew in each step: the last ones.
        dimensions: columns of the nodes' positions, 0 without.
    """

    options: ModelConfig = field(metadata=DERIVED)
    d_in: int
    classes: int
    sparse_input: bool = False
    weighted: bool = False
    edge_types: int = 0
    loop_relation: bool = False
    node_types: int = 0
    constant_input: bool = True
    hidden_bias: bool = True
    dtype: torch.dtype = torch.float32
    kept: torch.dtype | None = None
    inputs: str = "file"
    edge_features: int = 0
    stacked: bool = field(default=True, metadata=DERIVED)
    facts: tuple[tuple[str, Any], ...] = field(default=(), metadata=DERIVED)
    same_edges: bool = field(default=True, metadata=DERIVED)
    held: torch.dtype | None = field(default=None, metadata=DERIVED)
    given: int = field(default=0, metadata=DERIVED)
    dimensions: int = field(default=0, metadata=DERIVED)

    @property
    def identity(self) -> dict[str, str]:
        """The values that a checkpoint has, and that a run which uses it must have as well."""
        own = [each.name for each in fields(self) if not each.metadata.get("derived")]
        return {
            **{name: str(getattr(self.options, name)) for name in _OPTIONS},
            **{name: str(getattr(self, name)) for name in own},
            **{name: str(value) for name, value in self.facts},
        }

    @property
    def learned(self) -> int:
        """How many of the d_in columns are learned: the last ones."""
        return inputs_of(self.inputs).learned

    @property
    def changing(self) -> int:
        """How many of the d_in columns change from step to step: the last ones."""
        return inputs_of(self.inputs).changing_columns(self.classes) + self.given

    @property
    def widths(self) -> tuple[int, ...]:
        """Input and output widths of the layers: (d_in, hidden, …, classes), or hidden ones to the end where a map
        comes after them.
        """
        options = self.options
        last = self.classes if options.jumping == "none" else options.hidden
        return (self.d_in, *[options.hidden] * (options.layers - 1), last)

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
        options = self.options
        if self.sparse_input or options.input_dropout == "raw" or not (self.constant_input and self.same_edges):
            return False
        return options.keep_input == "always" or (options.keep_input == "auto" and self.d_in <= 2 * self.first_width)

    @property
    def drops_rows(self) -> bool:
        """Whether training drops elements of the features, which each rank sends again in every epoch."""
        return self.options.input_dropout == "raw" and self.options.dropout > 0


#: The spec of a layer that is made by itself, and not by a model.
PLAIN = ModelSpec(ModelConfig(), 0, 0)
