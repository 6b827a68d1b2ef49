"""Layers of PyG on a graph that is spread over ranks.

A `MessagePassing` layer of PyG needs its graph in two calls only: `propagate`, which makes, sums and updates messages
along edge_index, and `edge_updater`. So its own forward runs here, with these two replaced. Its requests to the
neighbours go to `Graph.propagate`, where remote rows stream past and messages are made again for the gradient.
Parameters, biases, heads and residuals stay PyG's, and so does the state dict.

Operations that cannot run edge by edge are refused. A softmax over a node's in-edges needs all of them, so layers with
one are known by name, and so is the normalisation of GCNConv. Other layers get an edge_index that refuses access.
Adding self loops to it, or counting degrees, would be wrong on a rank with a part of the edges.
"""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.functional import leaky_relu

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.nn.graph import Graph
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.traits import LayerTraits

_REDUCE = {"SumAggregation": "sum", "MeanAggregation": "mean", "MaxAggregation": "max", "MinAggregation": "min"}


def from_pyg_layer(layer: nn.Module, number: int = 0) -> "PygLayer":
    """Wrap a layer of PyG: conv = from_pyg_layer(torch_geometric.nn.SAGEConv(16, 32)); conv(graph, x).

    It takes GCNConv, GATConv, GATv2Conv and TransformerConv. It also takes any MessagePassing layer, PyG's or custom,
    whose messages depend on rows of the two ends (x_j, x_i, and others of such names) and of the edge. The aggregation
    must be sum, mean, max, min, or several of these: SAGEConv, GINConv, GraphConv, EdgeConv and others.

    Args:
        layer: the layer.
        number: its number in the model, which keys attention dropout.

    Raises:
        ConfigError: the layer does not fit, with the reason.
    """
    return PygLayer(layer, number)


class PygLayer(nn.Module):
    """forward(graph, x (n_p, d_in), **edges) -> (n_p, d_out). Collective, differentiable.

    edges: further arguments of the layer's own forward, such as edge_weight=graph.edge_weight, or edge_attr (E_p, …), a
    row for each in-edge of owned nodes. A layer that adds self loops (GCNConv, GATConv, GATv2Conv) sees the edges of
    graph.seen_with('add').
    """

    def __init__(self, layer: nn.Module, number: int = 0) -> None:
        super().__init__()
        base = next((each for each in type(layer).__mro__ if each.__name__ == "MessagePassing"), None)
        if base is None:
            raise ConfigError(f"from_pyg_layer: expected a MessagePassing layer of PyG, got {type(layer).__name__}")
        self.layer, self.number = layer, number
        known = type(layer).__module__.startswith("torch_geometric.")
        self._rule: Any = _KNOWN.get(type(layer).__name__) if known else None
        if type(layer).__name__ == "GCNConv" and not getattr(layer, "normalize", True):
            self._rule = None
        _check(layer, base, self._rule is not None)
        self.reduce = None if self._rule else _reduce(layer)
        self.traits = LayerTraits(
            self_loops="add" if self._rule and getattr(layer, "add_self_loops", False) else "keep"
        )

    def forward(self, graph: Graph, x: torch.Tensor, **edges: Any) -> torch.Tensor:
        if not isinstance(x, torch.Tensor):
            raise GraphError("a layer of PyG needs rows of numbers, and the features are sparse; transform them first")
        view = graph.seen_with(self.traits.self_loops) if self._rule else graph
        if (
            self._rule is _gcn
            and edges.get("edge_weight") is not None
            and edges["edge_weight"] is not graph.edge_weight
        ):
            _refuse(self.layer, "edge_weight is not that of the graph", "expected edge_weight=graph.edge_weight")
        if self._rule and self.traits.self_loops == "add" and edges.get("edge_attr") is not None:
            _refuse(
                self.layer,
                "it would have to fill in edge_attr for the self loops that it adds",
                "make it with add_self_loops=False",
            )
        with self._replaced(view):
            return self.layer(x, _Unread() if self._rule else _refusing(), **edges)

    @contextlib.contextmanager
    def _replaced(self, graph: Graph) -> Iterator[None]:
        """The body sees the layer with its two verbs on this graph."""

        def propagate(edge_index: Any, size: Any = None, **given: Any) -> torch.Tensor:
            if self._rule is None:
                return _by_messages(self.layer, graph, self.reduce, given)
            return self._rule(self, graph, given)

        def edge_updater(edge_index: Any, size: Any = None, **given: Any) -> "_Later":
            if self._rule is None:
                _refuse(self.layer, "its edge_updater looks at the edges of a node together", _KNOWN_LAYERS)
            return _Later(given)

        layer: Any = self.layer
        layer.propagate, layer.edge_updater = propagate, edge_updater
        try:
            yield
        finally:
            del layer.propagate, layer.edge_updater


@dataclass(frozen=True)
class _Later:
    """Arguments of an edge_updater: it runs together with the messages."""

    given: Mapping[str, Any]


class _Unread:
    """A placeholder for edge_index, for known layers."""


class _Refusing(torch.Tensor):
    """In place of edge_index, for all others: whatever reads it is an error."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise ConfigError.on_all(
            f"from_pyg_layer: this layer reads edge_index itself ({getattr(func, '__name__', func)}), of which a rank "
            f"has only a part; {_KNOWN_LAYERS}"
        )


_KNOWN_LAYERS = (
    "expected GCNConv, GATConv, GATv2Conv, TransformerConv, or a layer that leaves edge_index to propagate, such as "
    "SAGEConv or GINConv; or write the layer for graph.propagate"
)


def _refusing() -> torch.Tensor:
    return torch.Tensor._make_subclass(_Refusing, torch.empty(2, 0, dtype=torch.int64))


def _refuse(layer: nn.Module, why: str, remedy: str) -> NoReturn:
    raise ConfigError.on_all(f"from_pyg_layer: {type(layer).__name__} does not fit: {why}; {remedy}")


def _check(layer: Any, base: type[Any], known: bool) -> None:
    """Raise ConfigError if the replaced methods would skip a feature of the layer."""
    if layer.flow != "source_to_target":
        _refuse(layer, f"its flow is {layer.flow}", "expected source_to_target, which is a node's in-edges")
    if getattr(layer, "decomposed_layers", 1) != 1:
        _refuse(layer, "decomposed_layers is for sampled graphs", "make it without")
    if any(value for name, value in vars(layer).items() if name.endswith("_hooks") and _of_messages(name)):
        _refuse(layer, "it has hooks on messages", "take them off")
    if getattr(layer, "improved", False):
        _refuse(layer, "improved=True gives self loops the weight 2", "make it without")
    for name in () if known else ("aggregate", "update"):
        if getattr(type(layer), name) is not getattr(base, name):
            _refuse(layer, f"it has its own {name}()", "expected one that has message() alone, and an aggr")


def _of_messages(name: str) -> bool:
    return name.startswith(("_propagate", "_message", "_aggregate", "_edge_update"))


def _reduce(layer: Any) -> str | tuple[str, ...]:
    """Return the name of the layer's aggregation in `Graph.propagate`. Raises ConfigError."""
    module = layer.aggr_module
    if type(module).__name__ == "MultiAggregation" and getattr(module, "mode", "") == "cat":
        names = [type(each).__name__ for each in module.aggrs]
        if all(name in _REDUCE for name in names):
            return tuple(_REDUCE[name] for name in names)
    if type(module).__name__ not in _REDUCE:
        _refuse(layer, f"its aggregation is {module}", "expected sum, mean, max, min, or several of them joined (cat)")
    return _REDUCE[type(module).__name__]


class _Columns:
    """Tensors (rows, …) side by side as one matrix, and the pieces of rows of it again."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> None:
        self._parts = [(name, each.shape[1:], each.dtype) for name, each in tensors.items()]
        self._widths = [math.prod(shape) for _, shape, _ in self._parts]
        flat = [_matrix(each).to(dtype) for each in tensors.values()]
        self.rows = None if not flat else flat[0] if len(flat) == 1 else torch.cat(flat, 1)

    def apart(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """{name: (E, …)} of some rows (E, width)."""
        pieces = rows.split(self._widths, 1)
        return {
            name: piece.reshape(len(rows), *shape).to(dtype)
            for (name, shape, dtype), piece in zip(self._parts, pieces, strict=True)
        }


def _matrix(x: torch.Tensor) -> torch.Tensor:
    """x (rows, …) as (rows, width), where there are no rows as well."""
    return x.unsqueeze(1) if x.dim() == 1 else x.flatten(1)


def _streamed(
    graph: Graph,
    message: Callable[[dict[str, Any]], Any],
    reduce: str | tuple[str, ...] | None,
    source: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    edge: Mapping[str, torch.Tensor],
    **options: Any,
) -> torch.Tensor:
    """`Graph.propagate` of a message of named rows {name: (E, …)} of the sources, the destinations and the edges."""
    dtype = next(iter((*source.values(), *target.values()))).dtype
    if not source:  # something must travel, or no edge would be seen
        source = {"": next(iter(target.values()))[:, :1]}
    columns = [_Columns(each, dtype) for each in (source, target, edge)]

    def of_rows(*rows: torch.Tensor) -> Any:
        given = iter(rows)
        parts = [each.apart(next(given)) for each in columns if each.rows is not None]
        return message({name: piece for part in parts for name, piece in part.items() if name})

    src, dst, edges = (each.rows for each in columns)
    assert src is not None, "there is always something of the sources"
    return graph.propagate(of_rows, reduce or "sum", x_src=src, x_dst=dst, edge=edges, **options)


def _ends(value: Any) -> tuple[Any, Any]:
    """(of the sources, of the destinations), as PyG has them: a pair, or one tensor for both."""
    return (value[0], value[1]) if isinstance(value, tuple | list) else (value, value)


def _by_messages(layer: Any, graph: Graph, reduce: Any, given: Mapping[str, Any]) -> torch.Tensor:
    """`propagate` of a layer whose message is made edge by edge."""
    source: dict[str, torch.Tensor] = {}
    target: dict[str, torch.Tensor] = {}
    edge: dict[str, torch.Tensor] = {}
    fixed: dict[str, Any] = {}
    for name, parameter in inspect.signature(layer.message).parameters.items():
        if name in layer.special_args:
            _refuse(layer, f"its message() takes {name}, which is of all edges of a node together", _KNOWN_LAYERS)
        stem, end = (name[:-2], name[-2:]) if name.endswith(("_i", "_j")) else (name, "")
        if stem not in given:
            if parameter.default is inspect.Parameter.empty:
                _refuse(layer, f"its message() takes {name}, which its forward() does not give", _KNOWN_LAYERS)
            continue
        value = given[stem] if not end else _ends(given[stem])[0 if end == "_j" else 1]
        if not isinstance(value, torch.Tensor):
            fixed[name] = value
            continue
        if end and layer.node_dim % value.dim() != 0:
            _refuse(
                layer, f"the nodes are not the first dimension of {stem} (node_dim={layer.node_dim})", _KNOWN_LAYERS
            )
        {"_j": source, "_i": target, "": edge}[end][name] = value
    shape: list[Any] = []

    def message(rows: dict[str, Any]) -> torch.Tensor:
        made = layer.message(**rows, **fixed)
        shape[:] = made.shape[1:]
        return _matrix(made)

    y = _streamed(graph, message, reduce, source, target, edge)
    if len(shape) == 1:
        return y
    if not isinstance(reduce, str):
        _refuse(layer, "several aggregations of messages that are no vectors", "expected one, or messages (E, F)")
    return y.view(len(y), *shape)


def _gcn(adapter: PygLayer, graph: Graph, given: Mapping[str, Any]) -> torch.Tensor:
    """GCNConv: D^-1/2 A D^-1/2 x, D of in-degrees at both ends, or of sums of the weights of in-edges."""
    x, by_weight = given["x"], given["edge_weight"] is not None
    degree = graph.in_degree
    if by_weight:
        ones = torch.ones(len(graph.ids), 1, dtype=x.dtype)
        degree = graph.constant("weights of in-edges", lambda: graph.aggregate(ones, "sum"))
    scale = degree.to(x.dtype).reshape(-1, 1).pow(-0.5)
    scale = scale.masked_fill(torch.isinf(scale), 0.0)
    if graph.weighted and not by_weight:
        return scale * graph.propagate(_row, "sum", x_src=scale * x)
    return scale * graph.aggregate(scale * x, "sum")


def _row(source: torch.Tensor) -> torch.Tensor:
    return source


def _gat(adapter: PygLayer, graph: Graph, given: Mapping[str, Any]) -> torch.Tensor:
    """GATConv: softmax of leaky(a_src·z_j + a_dst·z_i + a_edge·W e) weighs z_j. Without e it is the library's own."""
    layer, later = _layer_of(adapter), given["alpha"].given
    z, (ahead, behind) = given["x"][0], later["alpha"]
    edge_attr = later["edge_attr"] if layer.lin_edge is not None else None
    p = layer.dropout if layer.training else 0.0
    if edge_attr is None:
        shape = AttentionShape(layer.heads, layer.out_channels, layer.negative_slope, False)
        return graph.attend(torch.cat([z.flatten(1), ahead, behind], 1), shape, adapter.number, p).view_as(z)

    def message(rows: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        each = layer.lin_edge(rows["e"]).view(-1, layer.heads, layer.out_channels)
        logit = rows["ahead"] + rows["behind"] + (each * layer.att_edge).sum(-1)
        return leaky_relu(logit, layer.negative_slope), rows["z"].flatten(1)

    source, target = {"z": z, "ahead": ahead}, {"behind": behind}
    return _softmax(adapter, graph, message, source, target, edge_attr, p).view_as(z)


def _gatv2(adapter: PygLayer, graph: Graph, given: Mapping[str, Any]) -> torch.Tensor:
    """GATv2Conv: softmax of a·leaky(z_j + w_i + W e) weighs z_j."""
    layer, (z, w) = _layer_of(adapter), given["x"]

    def message(rows: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        score = rows["z"] + rows["w"]
        if "e" in rows:
            score = score + layer.lin_edge(rows["e"]).view_as(score)
        return (leaky_relu(score, layer.negative_slope) * layer.att).sum(-1), rows["z"].flatten(1)

    p = layer.dropout if layer.training else 0.0
    edge_attr = given["alpha"].given["edge_attr"]
    return _softmax(adapter, graph, message, {"z": z}, {"w": w}, edge_attr, p).view_as(z)


def _transformer(adapter: PygLayer, graph: Graph, given: Mapping[str, Any]) -> torch.Tensor:
    """TransformerConv: softmax of q_i·(k_j + W e) / √width weighs v_j + W e."""
    layer, edge_attr = _layer_of(adapter), given["edge_attr"]

    def message(rows: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        key, value = rows["key"], rows["value"]
        if "e" in rows and layer.lin_edge is not None:
            each = layer.lin_edge(rows["e"]).view_as(key)
            key, value = key + each, value + each
        return (rows["query"] * key).sum(-1) / math.sqrt(layer.out_channels), value.flatten(1)

    p = layer.dropout if layer.training else 0.0
    source, target = {"key": given["key"], "value": given["value"]}, {"query": given["query"]}
    return _softmax(adapter, graph, message, source, target, edge_attr, p).view_as(given["value"])


def _softmax(
    adapter: PygLayer,
    graph: Graph,
    message: Callable[[dict[str, Any]], Any],
    source: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    edge_attr: torch.Tensor | None,
    p: float,
) -> torch.Tensor:
    """`_streamed` of (logits, values), with rows `e` of edge_attr (E_p, …), if there is one."""
    edge = {} if edge_attr is None else {"e": _matrix(edge_attr)}
    return _streamed(graph, message, "softmax", source, target, edge, dropout=p, layer=adapter.number)


def _layer_of(adapter: PygLayer) -> Any:
    return adapter.layer


_KNOWN = {"GCNConv": _gcn, "GATConv": _gat, "GATv2Conv": _gatv2, "TransformerConv": _transformer}
