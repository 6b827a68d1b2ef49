"""The same weights under the names and in the shapes of PyG's and DGL's layers, and back.

Each layer of ours has a list of the foreign layer's tensors, each with its source in ours. Layers of the same name may
compute another function (docs/definitions.md). Then there is no such list, or `reason_against` describes the
difference.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch

from hpcgnn.app.weights import Library, State, Tensors, check_names
from hpcgnn.config import Config
from hpcgnn.errors import CheckpointError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.spec import ModelSpec


class Slot(NamedTuple):
    """A tensor of a foreign layer, and its source in ours.

    Attributes:
        form: 'same'; 'turned' (its transpose); 'led' (one axis of length 1 before the others); 'vector' (one number as
            a vector); 'by head' (a bias of averaged heads, for each of them).
        half: 0 or 1 if ours joins two by columns, else -1.
        like: for a bias, a tensor of ours with as many columns, for layers without the bias.
    """

    theirs: str
    ours: str
    form: str = "same"
    half: int = -1
    like: str = ""


def _map(theirs: str, ours: str, half: int = -1) -> list[Slot]:
    """A linear map: its weight, and its bias, which ours may lack."""
    weight = Slot(f"{theirs}.weight", f"{ours}.weight", "turned", half)
    return [weight, Slot(f"{theirs}.bias", f"{ours}.bias", half=half, like=f"{ours}.weight")]


PYG = {
    "gcn": [Slot("lin.weight", "linear.weight", "turned"), Slot("bias", "linear.bias", like="linear.weight")],
    "sgc": _map("lin", "linear"),
    "sage": [
        Slot("lin_l.weight", "neighbour.weight", "turned"),
        Slot("lin_l.bias", "own.bias", like="own.weight"),
        Slot("lin_r.weight", "own.weight", "turned"),
    ],
    "gin": [
        Slot("eps", "eps", "vector"),
        *_map("nn.lins.0", "first"),
        *_map("nn.lins.1", "second"),
    ],
    "gat": [
        Slot("lin.weight", "linear.weight", "turned"),
        Slot("att_src", "att_src", "led"),
        Slot("att_dst", "att_dst", "led"),
        Slot("bias", "bias", like="linear.weight"),
    ],
    "gatv2": [
        Slot("att", "attention", "led"),
        *_map("lin_l", "source"),
        *_map("lin_r", "target"),
        Slot("bias", "bias", like="source.weight"),
    ],
    "transformer": [
        *_map("lin_key", "key_value", half=0),
        *_map("lin_value", "key_value", half=1),
        *_map("lin_query", "query"),
        *_map("lin_skip", "own"),
    ],
    "rgcn": [
        Slot("weight", "bases"),
        Slot("comp", "coefficients"),
        Slot("root", "own.weight"),
        Slot("bias", "own.bias", like="own.weight"),
    ],
}
DGL = {
    "gcn": [Slot("weight", "linear.weight"), Slot("bias", "linear.bias", like="linear.weight")],
    "sgc": _map("fc", "linear"),
    "sage": [
        Slot("fc_neigh.weight", "neighbour.weight", "turned"),
        *_map("fc_self", "own"),
    ],
    "gin": [
        Slot("eps", "eps", "vector"),
        *_map("apply_func.0", "first"),
        *_map("apply_func.2", "second"),
    ],
    "gat": [
        Slot("fc.weight", "linear.weight", "turned"),
        Slot("attn_l", "att_src", "led"),
        Slot("attn_r", "att_dst", "led"),
        Slot("bias", "bias", "by head", like="linear.weight"),
    ],
}
_NORM = ("weight", "bias", "running_mean", "running_var")


class ForeignLayers(Library):
    """The layers of a library. layers: {model: the tensors of its layer}."""

    def __init__(self, title: str, layers: Mapping[str, list[Slot]]) -> None:
        self.title, self._layers = title, layers

    def reason_against(self, spec: ModelSpec, meta: GraphMeta, config: Config) -> str:
        name, library, weighted, plugin = spec.options.model, self.title, meta.weighted, config.model.plugin
        dgl = library == "DGL"
        if plugin or name not in self._layers:
            return f"{library} has no layer that computes what {name} of {'--plugin' if plugin else 'hpcgnn'} does"
        if spec.options.jumping != "none":
            return f"a map behind the last layer (--jumping {spec.options.jumping}) is no layer of {library}'s"
        if spec.options.linear_residual:
            return f"the map of --linear-residual is in no layer that hpcgnn fills for {library}"
        if not meta.undirected and (name == "sgc" or (name == "gcn" and not dgl)):
            return f"the graph is directed: {name} divides by the out-degrees of sources, {library} by their in-degrees"
        if weighted and name in ("gin", "rgcn", "sage"):
            return f"the graph's edges have weights, which {library}'s layer takes no mean or sum by"
        if weighted and dgl and name == "gcn":
            return "the graph's edges have weights, which DGL's GraphConv leaves out of its degrees"
        if spec.edge_features:
            return f"the model reads features of edges, for which no layer of {library} is filled"
        if config.data.self_loops == "add" and name in ("sage", "gin", "rgcn", "transformer"):
            return (
                f"{library}'s layer adds no self loops, and the run did (--self-loops add); import the graph with them"
            )
        return ""

    def export(self, spec: ModelSpec, state: State) -> Tensors:
        found: Tensors = {}
        for layer in range(_count(state, "convs")):
            here = _prefix(layer)
            for slot in self._layers[spec.options.model]:
                found[here + slot.theirs] = _given(slot, here, state)
        for norm in range(_count(state, "norms")):
            inner = "module." if self.title == "PyG" and spec.options.norm == "batch" else ""
            for part in _NORM:
                if f"norms.{norm}.{part}" in state:
                    # Running statistics are float64 here.
                    found[f"norms.{norm}.{inner}{part}"] = state[f"norms.{norm}.{part}"].to(spec.dtype)
            if spec.options.norm == "batch":
                found[f"norms.{norm}.{inner}num_batches_tracked"] = torch.tensor(1)
        if "before.weights" in state:
            found["before.weight"], found["before.bias"] = state["before.weights"], state["before.bias"]
        return {name: tensor.contiguous() for name, tensor in found.items()}

    def matches(self, spec: ModelSpec, state: State, template: State) -> int:
        if spec.options.model not in self._layers:
            return 0
        return len({self._usual(name, spec) for name in state} & self.export(spec, template).keys())

    def take(self, spec: ModelSpec, state: State, template: State) -> Tensors:
        expected = self.export(spec, template)
        given = {self._usual(name, spec): tensor for name, tensor in state.items()}
        optional = [name for name in expected if name.endswith("num_batches_tracked")]
        check_names({name: tensor for name, tensor in expected.items() if name not in optional}, given, optional)
        found: Tensors = {}
        for layer in range(_count(template, "convs")):
            here = _prefix(layer)
            for slot in self._layers[spec.options.model]:
                tensor = given[here + slot.theirs]
                tensor = {"turned": tensor.mT if tensor.ndim > 1 else tensor, "led": tensor[0]}.get(slot.form, tensor)
                if slot.form == "vector":
                    tensor = tensor.reshape(())
                name = here + slot.ours
                if slot.form == "by head" and name in template:
                    tensor = tensor.reshape(-1, len(template[name])).mean(0)
                if name not in template:
                    _let_go(slot, layer, tensor, given)
                elif slot.half == 1:
                    found[name] = torch.cat([found[name], tensor], -1)
                else:
                    found[name] = tensor
        for name in template:
            if name.startswith("norms."):
                found[name] = given[self._usual(name, spec)]
        if "before.weights" in template:
            found["before.weights"], found["before.bias"] = given["before.weight"], given["before.bias"]
        return {name: tensor.contiguous().to(template[name].dtype) for name, tensor in found.items()}

    def _usual(self, name: str, spec: ModelSpec) -> str:
        """The name in a module with `convs` and `norms`; these lists may have other names, as in examples of DGL. PyG's
        BatchNorm wraps torch's.
        """
        if not name.startswith("norms."):
            name = re.sub(r"^(layers|conv_layers|gat_layers|gcn_layers|sage_layers|gnn_layers)\.(?=\d)", "convs.", name)
        if spec.options.norm != "batch" or self.title != "PyG":
            return name
        return re.sub(r"^(norms\.\d+\.)(?!module\.)", r"\1module.", name)


def _prefix(layer: int) -> str:
    return f"convs.{layer}."


def _count(state: Iterable[str], part: str) -> int:
    return len({name.split(".")[1] for name in state if name.startswith(f"{part}.")})


def _given(slot: Slot, here: str, state: Mapping[str, torch.Tensor]) -> torch.Tensor:
    ours = state.get(here + slot.ours)
    if ours is None:
        like = state[here + slot.like]
        ours = torch.zeros(like.shape[-1], dtype=like.dtype)
    if slot.half >= 0:
        ours = ours.chunk(2, -1)[slot.half]
    if slot.form == "turned":
        return ours.T
    if slot.form == "led":
        return ours.unsqueeze(0)
    if slot.form == "by head":
        return ours.repeat(state[here + slot.like].shape[-1] // len(ours))
    return ours.reshape(1) if slot.form == "vector" else ours


def _let_go(slot: Slot, layer: int, bias: torch.Tensor, given: Tensors) -> None:
    """A bias before a batch norm, which takes it away again: the mean that it takes is smaller without."""
    if slot.theirs == "lin_key.bias":
        return  # no softmax sees it
    if slot.theirs == "lin_value.bias":
        if bias.any():
            raise CheckpointError(
                f"{_prefix(layer)}lin_value.bias is not zero: transformer with --norm batch has no such bias here, and "
                "nodes without in-edges do not get it, so that no running mean makes up for it; expected zeros, or "
                "another --norm"
            )
        return
    mean = next(name for name in given if re.fullmatch(rf"norms\.{layer}\.(module\.)?running_mean", name))
    given[mean] = given[mean].double() - bias.double()


#: By the words of `--to`.
LIBRARIES = {"pyg": ForeignLayers("PyG", PYG), "dgl": ForeignLayers("DGL", DGL)}
