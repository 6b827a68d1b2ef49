"""Layers and models of PyG on a graph that is spread over ranks.

PyG's own forward runs here. It asks two things of the graph: `propagate`, which makes, sums and updates messages along
edge_index, and `edge_updater`: these two are replaced in every MessagePassing layer, and edge_index by `SpreadEdges`
(edges.py). Parameters, biases, heads and residuals stay PyG's, and so does the state dict.

A layer is served in one of three ways. Four layers with a softmax or a norm of their own are known by name
(rules.py). If messages are made edge by edge, and reduced by a sum or the like, they stream: `Graph.propagate`
makes them from rows that stream past, and again for the gradient. All others see the messages of all in-edges of a rank
at once, as in PyG, if `keep_messages` allows this memory. What depends on the rows of all nodes is refused.
An `edge_updater`, and MetaLayer's model of edges, that treats each edge alone streams likewise: `Graph.update_edges`.
"""

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.extras.pyg.edges import SpreadEdges, refuse
from hpcgnn.extras.pyg.messages import (
    OF_EDGES,
    Values,
    called,
    kept_messages,
    streamed_messages,
    streamed_update,
    under_way,
)
from hpcgnn.extras.pyg.rules import RULES
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.norm import BatchNorm
from hpcgnn.traits import LayerTraits

_REDUCE = {"SumAggregation": "sum", "MeanAggregation": "mean", "MaxAggregation": "max", "MinAggregation": "min"}
#: Modules of torch and PyG that mix the rows of nodes, and modules of these packages that do not.
_MIXING = (
    *("torch.nn.modules.instancenorm", "torch.nn.modules.activation.Multihead", "torch_geometric.nn.norm."),
    *("torch_geometric.nn.pool.", "torch_geometric.nn.attention.", "torch_geometric.nn.dense.dense_"),
)
_ROW_WISE = ("torch_geometric.nn.norm.batch_norm.BatchNorm", "torch_geometric.nn.norm.msg_norm.MessageNorm")
_KEEP = "expected from_pyg_layer(layer, keep_messages=True), which keeps the messages of a rank's in-edges as PyG does"


def from_pyg_layer(layer: nn.Module, number: int = 0, keep_messages: bool = False) -> "PygLayer":
    """Wrap a layer of PyG: conv = from_pyg_layer(torch_geometric.nn.SAGEConv(16, 32)); conv(graph, x).

    A layer is any module with `forward(x, edge_index, …)` that consists of MessagePassing layers, PyG's or custom:
    whole models such as torch_geometric.nn.GraphSAGE too. Apart from messages it must treat each row of nodes alone.
    Batch norms of torch get the statistics of all nodes.

    Args:
        layer: the layer.
        number: its number in the model, which keys attention dropout.
        keep_messages: for layers that look at the messages of a node together: keep the messages of all in-edges of a
            rank, (E_p, F), until the gradient, as PyG does.

    Raises:
        ConfigError: the layer does not fit, with the reason.
    """
    return PygLayer(layer, number, keep_messages)


class PygLayer(nn.Module):
    """forward(graph, x (n_p, d_in), **edges) -> (n_p, d_out). Collective, differentiable.

    edges: further arguments of the layer's own forward, such as edge_weight=graph.edge_weight, edge_attr (E_p, …), a
    row for each in-edge of owned nodes, or rows of owned nodes. GCNConv, GATConv and GATv2Conv that add self loops see
    the edges of graph.seen_with('add').
    """

    def __init__(self, layer: nn.Module, number: int = 0, keep_messages: bool = False) -> None:
        super().__init__()
        parts = [each for each in layer.modules() if _base(each) is not None]
        self._meta = [each for each in layer.modules() if _is_meta(each)]
        if not parts and not self._meta:
            raise ConfigError(f"from_pyg_layer: expected a MessagePassing layer of PyG, got {type(layer).__name__}")
        names = inspect.signature(layer.forward).parameters
        self._edges = next((name for name in ("edge_index", "adj_t", "adj") if name in names), "")
        if not self._edges:
            refuse(layer, "its forward() takes no edge_index, as a layer on one given graph does", "use another layer")
        self.layer, self.number, self.keep_messages = layer, number, keep_messages
        self._parts = [_LayerPart(each, number + place, keep_messages) for place, each in enumerate(parts)]
        _check_rows(layer)
        adds = any(part.rule and getattr(part.layer, "add_self_loops", False) for part in self._parts)
        self.traits = LayerTraits(self_loops="add" if adds else "keep")

    def forward(self, graph: Graph, x: torch.Tensor, **edges: Any) -> torch.Tensor:
        if not isinstance(x, torch.Tensor):
            raise GraphError("a layer of PyG needs rows of numbers, and the features are sparse; transform them first")
        with contextlib.ExitStack() as stack:
            for part in self._parts:
                stack.enter_context(part.on(graph))
            for meta in self._meta:
                stack.enter_context(_replaced(meta, forward=partial(_meta_forward, meta)))
            for norm in (each for each in self.layer.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)):
                stack.enter_context(_replaced(norm, forward=partial(_normalise, norm, graph)))
            return self.layer(x, **{self._edges: SpreadEdges.of(graph, self.keep_messages)}, **edges)


def _base(layer: nn.Module) -> type[Any] | None:
    """PyG's MessagePassing, if the layer is one."""
    return next((each for each in type(layer).__mro__ if each.__name__ == "MessagePassing"), None)


def _is_meta(layer: Any) -> bool:
    """Whether it is PyG's MetaLayer. Raises ConfigError for one with a model of the whole graph."""
    meta = any(each.__name__ == "MetaLayer" for each in type(layer).__mro__)
    if meta and layer.global_model is not None:
        refuse(layer, "its global_model reads the rows of all nodes", "make it without")
    return meta


def _meta_forward(
    layer: Any, x: torch.Tensor, edge_index: SpreadEdges, edge_attr: Any = None, u: Any = None, batch: Any = None
) -> tuple[torch.Tensor, Any, Any]:
    """MetaLayer.forward, whose edge_model makes the edges one by one while rows stream by."""
    if layer.edge_model is not None:
        if u is not None or batch is not None or edge_index.place is not None:
            refuse(layer, "its edge_model gets more than an edge and its ends", "expected u=None and batch=None")

        def of_edges(source: torch.Tensor, target: torch.Tensor, *edge: torch.Tensor) -> Any:
            return layer.edge_model(source, target, edge[0] if edge else None, u, batch)

        edge_attr, _ = edge_index.graph.update_edges(of_edges, x_src=x, x_dst=x, edge=edge_attr)
    if layer.node_model is not None:
        x = layer.node_model(x, edge_index, edge_attr, u, batch)
    return x, edge_attr, u


@contextlib.contextmanager
def _replaced(module: nn.Module, **methods: Any) -> Iterator[None]:
    for name, method in methods.items():
        setattr(module, name, method)
    try:
        yield
    finally:
        for name in methods:
            delattr(module, name)


@dataclass(frozen=True)
class _Later:
    """Arguments of an edge_updater: it runs together with the messages."""

    given: Mapping[str, Any]


class _Unread:
    """A placeholder for edge_index, for known layers."""


def _check_rows(layer: nn.Module) -> None:
    """Raise ConfigError for modules that mix the rows of nodes."""
    inside = {id(each) for part in layer.modules() if _base(part) for each in _modules_of(part)}
    for each in layer.modules():
        name = f"{type(each).__module__}.{type(each).__name__}"
        graphwise = name.endswith("norm.layer_norm.LayerNorm") and getattr(each, "mode", "") == "node"
        mixes = name.startswith(_MIXING) and name not in _ROW_WISE and not graphwise
        if mixes or (name.startswith("torch_geometric.nn.aggr.") and id(each) not in inside):
            refuse(layer, f"{type(each).__name__} reads the rows of all nodes", "make it without")


def _modules_of(part: Any) -> list[nn.Module]:
    return list(part.aggr_module.modules()) if part.aggr_module is not None else []


def _normalise(norm: Any, graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """A batch norm of torch, with the statistics of all nodes."""
    if not norm.training and norm.running_mean is not None:
        return type(norm).forward(norm, x)
    if under_way or x.dim() != 2 or len(x) != len(graph.ids):
        refuse(norm, "it would normalise something else than the rows of nodes", "make the layer without")
    if norm.weight is None or norm.momentum is None or norm.running_mean is None:
        refuse(norm, "expected affine=True, a momentum and running statistics", "make it with these")
    norm.num_batches_tracked.add_(1)
    return BatchNorm.forward(norm, graph, x)


class _LayerPart:
    """A MessagePassing layer, and how it is served.

    Attributes:
        layer: the layer.
        rule: of rules.py, or None.
        reason: why messages cannot stream, or ''.
        reduce: the aggregation of streamed messages.
    """

    def __init__(self, layer: Any, number: int, keep_messages: bool) -> None:
        self.layer, self.number, self.keep = layer, number, keep_messages
        known = type(layer).__module__.startswith("torch_geometric.")
        self.rule = RULES.get(type(layer).__name__) if known else None
        if not getattr(layer, "normalize", True) or getattr(layer, "improved", False):
            self.rule = None
        if layer.flow != "source_to_target":
            refuse(layer, f"its flow is {layer.flow}", "expected source_to_target, which is a node's in-edges")
        if getattr(layer, "decomposed_layers", 1) != 1:
            refuse(layer, "decomposed_layers is for sampled graphs", "make it without")
        if any(value for name, value in vars(layer).items() if name.endswith("_hooks") and _of_messages(name)):
            refuse(layer, "it has hooks on messages", "take them off")
        if known and type(layer).__name__ == "MeshCNNConv":
            refuse(layer, "its message() reads four edges together, by their position", "use another layer")
        kinds = {type(each).__name__ for each in _modules_of(layer)}
        if ordered := kinds & {"LSTMAggregation", "GRUAggregation"}:
            refuse(layer, f"its aggregation is {ordered.pop()}, which depends on the order of edges", "use another one")
        self.reduce, self.reason = _reduce(layer)
        if self.rule is None and self.reason and not keep_messages:
            refuse(layer, self.reason, _KEEP)

    def ruled(self, graph: Graph, given: Mapping[str, Any]) -> bool:
        """Whether the rule serves this call. given: arguments of the layer's forward."""
        if self.rule is None:
            return False
        name, weight, attr = type(self.layer).__name__, given.get("edge_weight"), given.get("edge_attr")
        adds = getattr(self.layer, "add_self_loops", False)
        return (weight is None or weight is graph.edge_weight) if name == "GCNConv" else not (adds and attr is not None)

    @contextlib.contextmanager
    def on(self, graph: Graph) -> Iterator[None]:
        """The layer has its two verbs on this graph."""
        adds = self.rule is not None and getattr(self.layer, "add_self_loops", False)
        view = graph.seen_with("add" if adds else "keep") if self.rule else graph

        def propagate(edge_index: Any, size: Any = None, **given: Any) -> torch.Tensor:
            if isinstance(edge_index, _Unread):
                assert self.rule is not None, "others see edges"
                return self.rule(self.layer, self.number, view, given)
            edges = self._checked(edge_index, graph)
            reason = self._why_not(edges)
            if not reason:
                return streamed_messages(self.layer, edges, self.reduce, given)
            if not self.keep:
                refuse(self.layer, reason, _KEEP)
            return kept_messages(self.layer, edges, given)

        def edge_updater(edge_index: Any, size: Any = None, **given: Any) -> Any:
            if isinstance(edge_index, _Unread):
                return _Later(given)
            edges = self._checked(edge_index, graph)
            reason = _together(self.layer.edge_update)
            if not reason and edges.place is not None:
                reason = "it updates edges that it has added or removed"
            if not reason:
                return streamed_update(self.layer, edges, given)
            if not self.keep:
                refuse(self.layer, reason, _KEEP)
            return called(self.layer.edge_update, (), Values(self.layer, edges, given))

        def forward(*args: Any, **kwargs: Any) -> Any:
            names = list(inspect.signature(type(self.layer).forward).parameters)[1:]
            given = dict(zip(names, args, strict=False)) | kwargs
            if isinstance(given.get("edge_index"), SpreadEdges) and self.ruled(graph, given):
                given["edge_index"] = _Unread()
            return type(self.layer).forward(self.layer, **given)

        inside = {"forward": forward} if self.rule else {}
        with _replaced(self.layer, propagate=propagate, edge_updater=edge_updater, **inside):
            yield

    def _checked(self, edges: Any, graph: Graph) -> SpreadEdges:
        if not isinstance(edges, SpreadEdges) or edges.graph is not graph:
            refuse(self.layer, "it propagates along something else than the edges of this graph", "use another layer")
        return edges

    def _why_not(self, edges: SpreadEdges) -> str:
        """Why messages along these edges cannot stream, or ''."""
        if not self.reason and edges.place is not None and self.reduce not in ("sum", "mean"):
            return f"it takes the {self.reduce} along edges that it has added or removed"
        return self.reason


def _of_messages(name: str) -> bool:
    return name.startswith(("_propagate", "_message", "_aggregate", "_edge_update"))


def _together(method: Any) -> str:
    """Why a layer's message() or edge_update() is not made edge by edge, or ''."""
    taken = sorted(OF_EDGES & set(inspect.signature(method).parameters))
    return f"its {method.__name__}() takes {taken[0]}, which is of all edges of a node together" if taken else ""


def _reduce(layer: Any) -> tuple[Any, str]:
    """(name of the layer's aggregation in `Graph.propagate`, why its messages cannot stream or '')."""
    base: Any = _base(layer)
    for name in ("aggregate", "update"):
        if getattr(type(layer), name) is not getattr(base, name):
            return None, f"it has its own {name}()"
    if reason := _together(layer.message):
        return None, reason
    module = layer.aggr_module
    kind = type(module).__name__
    if kind == "SoftmaxAggregation" and not module.semi_grad:
        return module, ""
    if kind == "MultiAggregation" and getattr(module, "mode", "") == "cat":
        names = [type(each).__name__ for each in module.aggrs]
        if all(name in _REDUCE for name in names):
            return tuple(_REDUCE[name] for name in names), ""
    if kind not in _REDUCE:
        return None, f"its aggregation is {module}"
    return _REDUCE[kind], ""
