"""Layers of PyG that are known by name: their sums are ours, with less sent and nothing kept for each edge."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.functional import leaky_relu

from hpcgnn.nn.graph import Graph
from hpcgnn.ops.additive_attention import Attending, AttentionShape


class Columns:
    """Tensors (rows, …) side by side as one matrix, and the pieces of rows of it again."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> None:
        self._parts = [(name, each.shape[1:], each.dtype) for name, each in tensors.items()]
        self._widths = [math.prod(shape) for _, shape, _ in self._parts]
        flat = [matrix(each).to(dtype) for each in tensors.values()]
        self.rows = None if not flat else flat[0] if len(flat) == 1 else torch.cat(flat, 1)

    def apart(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """{name: (E, …)} of some rows (E, width)."""
        pieces = rows.split(self._widths, 1)
        return {
            name: piece.reshape(len(rows), *shape).to(dtype)
            for (name, shape, dtype), piece in zip(self._parts, pieces, strict=True)
        }


def matrix(x: torch.Tensor) -> torch.Tensor:
    """x (rows, …) as (rows, width), where there are no rows as well."""
    return x.unsqueeze(1) if x.dim() == 1 else x.flatten(1)


def streamed(
    graph: Graph,
    message: Callable[[dict[str, Any]], Any],
    reduce: str | tuple[str, ...] | None,
    source: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    edge: Mapping[str, torch.Tensor],
    **options: Any,
) -> torch.Tensor:
    """`Graph.propagate` of a message of named rows {name: (E, …)} of the sources, the destinations and the edges, or
    `Graph.update_edges` if nothing reduces them.
    """
    dtype = next(iter((*source.values(), *target.values()))).dtype
    if not source:  # something must travel, or no edge would be seen
        source = {"": next(iter(target.values()))[:, :1]}
    columns = [Columns(each, dtype) for each in (source, target, edge)]

    def of_rows(*rows: torch.Tensor) -> Any:
        given = iter(rows)
        parts = [each.apart(next(given)) for each in columns if each.rows is not None]
        return message({name: piece for part in parts for name, piece in part.items() if name})

    src, dst, edges = (each.rows for each in columns)
    assert src is not None, "there is always something of the sources"
    if reduce is None:
        return graph.update_edges(of_rows, x_src=src, x_dst=dst, edge=edges)[0]
    return graph.propagate(of_rows, reduce, x_src=src, x_dst=dst, edge=edges, **options)


def _gcn(layer: Any, number: int, graph: Graph, given: Mapping[str, Any]) -> torch.Tensor:
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


def _gat(layer: Any, number: int, graph: Graph, given: Mapping[str, Any]) -> torch.Tensor:
    """GATConv: softmax of leaky(a_src·z_j + a_dst·z_i + a_edge·W e) weighs z_j. Without e it is the library's own."""
    later = given["alpha"].given
    z, (ahead, behind) = given["x"][0], later["alpha"]
    edge_attr = later["edge_attr"] if layer.lin_edge is not None else None
    if edge_attr is None:
        shape = AttentionShape(layer.heads, layer.out_channels, layer.negative_slope, False)
        projected = torch.cat([z.flatten(1), ahead, behind], 1)
        return graph.attention_layer(projected, None, Attending(shape, p=_dropout(layer)), number).view_as(z)

    def message(rows: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        each = layer.lin_edge(rows["e"]).view(-1, layer.heads, layer.out_channels)
        logit = rows["ahead"] + rows["behind"] + (each * layer.att_edge).sum(-1)
        return leaky_relu(logit, layer.negative_slope), rows["z"].flatten(1)

    source, target = {"z": z, "ahead": ahead}, {"behind": behind}
    return _softmax(layer, number, graph, message, source, target, edge_attr).view_as(z)


def _gatv2(layer: Any, number: int, graph: Graph, given: Mapping[str, Any]) -> torch.Tensor:
    """GATv2Conv: softmax of a·leaky(z_j + w_i + W e) weighs z_j."""
    z, w = given["x"]

    def message(rows: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        score = rows["z"] + rows["w"]
        if "e" in rows:
            score = score + layer.lin_edge(rows["e"]).view_as(score)
        return (leaky_relu(score, layer.negative_slope) * layer.att).sum(-1), rows["z"].flatten(1)

    edge_attr = given["alpha"].given["edge_attr"]
    return _softmax(layer, number, graph, message, {"z": z}, {"w": w}, edge_attr).view_as(z)


def _transformer(layer: Any, number: int, graph: Graph, given: Mapping[str, Any]) -> torch.Tensor:
    """TransformerConv: softmax of q_i·(k_j + W e) / √width weighs v_j + W e."""
    edge_attr = given["edge_attr"]

    def message(rows: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        key, value = rows["key"], rows["value"]
        if "e" in rows and layer.lin_edge is not None:
            each = layer.lin_edge(rows["e"]).view_as(key)
            key, value = key + each, value + each
        return (rows["query"] * key).sum(-1) / math.sqrt(layer.out_channels), value.flatten(1)

    source, target = {"key": given["key"], "value": given["value"]}, {"query": given["query"]}
    return _softmax(layer, number, graph, message, source, target, edge_attr).view_as(given["value"])


def _dropout(layer: Any) -> float:
    return float(layer.dropout) if layer.training else 0.0


def _softmax(
    layer: Any,
    number: int,
    graph: Graph,
    message: Callable[[dict[str, Any]], Any],
    source: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    edge_attr: torch.Tensor | None,
) -> torch.Tensor:
    """`streamed` of (logits, values), with rows `e` of edge_attr (E_p, …), if there is one."""
    edge = {} if edge_attr is None else {"e": matrix(edge_attr)}
    return streamed(graph, message, "softmax", source, target, edge, dropout=_dropout(layer), layer=number)


#: rule(layer, number, graph, the arguments of propagate) -> the sums.
RULES: dict[str, Callable[..., torch.Tensor]] = {
    "GCNConv": _gcn,
    "GATConv": _gat,
    "GATv2Conv": _gatv2,
    "TransformerConv": _transformer,
}
