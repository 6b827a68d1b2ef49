"""Weights of `meshgraphnet` under the names and in the shapes of Dist-GNN (nekRS-ML), and back."""

from typing import Any

import torch

from hpcgnn.app.weights import Library, State, Tensors, check_names
from hpcgnn.config import Config
from hpcgnn.extras.meshes.meshgraphnet import MODEL
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec

#: Parts of names, ours and theirs.
_PARTS = {
    "convs": "processor",
    "edge": "edge_updater",
    "node": "node_updater",
    "decoder": "node_decoder",
    "linears": "mlp",
    "norm": "norm_layer",
}


class DistGnn(Library):
    """Its class DistributedGNN, with layer_norm=True."""

    title = "Dist-GNN"

    def reason_against(self, spec: ModelSpec, meta: GraphMeta, config: Config) -> str:
        options: Any = spec.options
        if MODELS[options.model] is not MODEL:
            return f"{self.title} has no layer that computes what {options.model} of hpcgnn does"
        for name, theirs in (("activation", "elu"), ("edge_states", "encoded")):
            if (ours := getattr(options, name)) != theirs:
                return f"{self.title} computes as --{name.replace('_', '-')} {theirs}, and the run has {ours}"
        if spec.edge_features:
            return f"the model reads features of edges, which {self.title} has none of"
        return ""

    def export(self, spec: ModelSpec, state: State) -> Tensors:
        return {_theirs(name): _turned(name, tensor) for name, tensor in state.items()}

    def matches(self, spec: ModelSpec, state: State, template: State) -> int:
        return len(state.keys() & {_theirs(name) for name in template})

    def take(self, spec: ModelSpec, state: State, template: State) -> Tensors:
        check_names(self.export(spec, template), state)
        return {name: _turned(name, state[_theirs(name)]).to(tensor.dtype) for name, tensor in template.items()}


def _theirs(name: str) -> str:
    return ".".join(_PARTS.get(part, part) for part in name.split("."))


def _turned(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Weights of linear maps are transposed."""
    return tensor.mT.contiguous() if tensor.ndim > 1 else tensor
