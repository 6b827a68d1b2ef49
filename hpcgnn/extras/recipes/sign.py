"""Scalable inception graph neural networks (Frasca et al., arXiv 2004.11198, 2020, the model "SIGN"):

    Z = σ([X Θ_0, A_1 X Θ_1, …, A_r X Θ_r])        Y = ξ(Z Ω)

The A_k X are columns of the graph file already (`hpcgnn propagate`). So each node is seen by itself, and training sends
no graph data. σ is relu; Z Ω is a layer like appnp's, and more such layers make Ω a perceptron.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.appnp import OwnLayer
from hpcgnn.nn.entry import ModelEntry
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.layer_input import Input
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.traits import LayerTraits


class HopsLayer(nn.Module):
    """The first layer: a linear map of each of the groups of columns, joined. widths: of the groups."""

    traits = LayerTraits(self_loops="add", neighbours="none", edges=())

    def __init__(self, widths: Sequence[int], d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out, self._widths = sum(widths), d_out, list(widths)
        self.linears = nn.ModuleList(Linear(width, d_out // len(widths), dtype=dtype) for width in widths)
        self.last_biases = [f"linears.{number}" for number in range(len(widths))]

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        """Own rows x (n_p, d_in) -> (n_p, d_out)."""
        if not isinstance(x, torch.Tensor):  # sparse features come in one part
            return self.linears[0](x)
        return torch.cat([linear(part) for linear, part in zip(self.linears, x.split(self._widths, 1), strict=True)], 1)


def _build(first: type[HopsLayer], spec: ModelSpec) -> Model:
    widths, facts = list(spec.widths), dict(spec.facts)
    parts = facts["part_widths"] or (spec.d_in // facts["parts"],) * facts["parts"]
    if spec.options.layers > 1:  # a single one is a linear map of all columns
        widths[1] *= len(parts)
    layers: list[OwnLayer | HopsLayer] = [OwnLayer(a, b, spec.dtype) for a, b in itertools.pairwise(widths)]
    if spec.options.layers > 1:
        layers[0] = first(parts, widths[1], spec.dtype)
    return Model(replace(spec, options=replace(spec.options, residual=False)), layers, widths[1:-1])


def _facts(meta: GraphMeta) -> dict[str, Any]:
    """The number of groups of columns, and their widths where these differ."""
    return {"parts": meta.num_feature_parts, "part_widths": meta.part_widths if meta.num_label_parts else ()}


MODEL = ModelEntry(lambda spec: HopsLayer, ("hidden", "norm"), _build, facts=_facts)


def rule(of: RunPlan) -> Iterator[str]:
    """Options that the model has no use for."""
    config = of.config
    given = (
        (f"--schedule {config.schedule.schedule}", not of.schedule.exact_epochs),
        (f"--features {config.task.features}", config.task.features != "file"),
        (of.changing, of.changing != ""),
        ("--inductive", config.data.inductive),
    )
    for option in (option for option, used in given if used and of.model is MODEL):
        yield (
            f"{option} is not for --model {config.model.model}, which learns from the columns of the graph file alone, "
            "propagated over the whole graph before, and exchanges nothing but gradients of parameters; leave it out"
        )
