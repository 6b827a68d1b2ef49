"""The messages of a PyG layer along the in-edges of a rank: as a stream, or all of them at once."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from hpcgnn.extras.pyg.edges import Sources, SpreadEdges, edge_count, refuse
from hpcgnn.extras.pyg.rules import matrix, streamed

#: Arguments that PyG makes of edge_index.
OF_EDGES = {
    "index",
    "ptr",
    "size",
    "size_i",
    "size_j",
    "dim_size",
    "edge_index",
    "edge_index_i",
    "edge_index_j",
    "adj_t",
}
#: Layers whose message() runs.
under_way: list[nn.Module] = []


def _ends(value: Any) -> tuple[Any, Any]:
    """(of the sources, of the destinations), as PyG has them: a pair, or one tensor for both."""
    return (value[0], value[1]) if isinstance(value, tuple | list) else (value, value)


class Values:
    """The arguments of message(), aggregate(), update() and edge_update(), made as PyG makes them."""

    def __init__(self, layer: Any, edges: SpreadEdges, given: Mapping[str, Any]) -> None:
        self.layer, self.edges, self.given = layer, edges, given
        count = len(edges.graph.ids)
        self._known: dict[str, Any] = {
            **{"ptr": None, "adj_t": None, "size": [count, count], "edge_index": edges},
            **dict.fromkeys(("size_i", "size_j", "dim_size"), count),
        }

    def has(self, name: str) -> bool:
        """Whether there is an argument of this name."""
        return name in self._known or name in OF_EDGES or name == "edge_index_j" or self.stem(name) in self.given

    def stem(self, name: str) -> str:
        """x of x_i and x_j."""
        return name[:-2] if name.endswith(("_i", "_j")) else name

    def of_node(self, name: str) -> Any:
        """The rows (n_p, …) of nodes behind a name like x_j."""
        value = _ends(self.given[self.stem(name)])[0 if name.endswith("_j") else 1]
        return _rows_first(self.layer, value) if isinstance(value, torch.Tensor) else value

    def __getitem__(self, name: str) -> Any:
        """The argument, with a row for each edge if it is of edges. Collective."""
        if name not in self._known:
            if name == "edge_index_j":
                value: Any = Sources.of(self.edges)
            elif name in ("index", "edge_index_i"):
                value = self.edges.targets
            elif name == self.stem(name):
                value = self.given[name]
            else:
                value = self.of_node(name)
                if isinstance(value, torch.Tensor):
                    value = self.edges.picked(value) if name.endswith("_j") else value[self.edges.targets]
                    value = _rows_back(self.layer, value)
            self._known[name] = value
        return self._known[name]


def _rows_first(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """x with the dimension of its nodes or edges, the layer's node_dim, as the first."""
    return x.movedim(layer.node_dim, 0) if x.dim() > 1 else x


def _rows_back(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """The inverse of `_rows_first`."""
    return x.movedim(0, layer.node_dim) if x.dim() > 1 else x


def called(method: Callable[..., Any], first: tuple[Any, ...], values: Values) -> Any:
    """method(*first, …) with all its other arguments."""
    parameters = list(inspect.signature(method).parameters.values())[len(first) :]
    return method(*first, **{each.name: values[each.name] for each in parameters if _wanted(each, values)})


def _wanted(parameter: inspect.Parameter, values: Values) -> bool:
    if values.has(parameter.name):
        return True
    if parameter.default is inspect.Parameter.empty:
        refuse(values.layer, f"a method takes {parameter.name}, which its forward() does not give", "give it")
    return False


@contextlib.contextmanager
def _of_message(layer: nn.Module) -> Iterator[None]:
    under_way.append(layer)
    try:
        yield
    finally:
        under_way.pop()


def kept_messages(layer: Any, edges: SpreadEdges, given: Mapping[str, Any]) -> torch.Tensor:
    """`propagate` as PyG has it, on the in-edges of own nodes."""
    values = Values(layer, edges, given)
    with _of_message(layer):
        messages = called(layer.message, (), values)
    sums = called(layer.aggregate, (messages,), values)
    return called(layer.update, (sums,), values)


def streamed_messages(layer: Any, edges: SpreadEdges, reduce: Any, given: Mapping[str, Any]) -> torch.Tensor:
    """`propagate` of a layer whose message is made edge by edge."""
    message, rows, shape = _of_edge(layer, layer.message, edges, given)
    y = _reduced(edges, reduce, message, rows)
    if len(shape) == 1:
        return y
    if not isinstance(reduce, str):
        refuse(layer, "several aggregations of messages that are no vectors", "expected one, or messages (E, F)")
    return _rows_back(layer, y.view(len(y), *shape))


def streamed_update(layer: Any, edges: SpreadEdges, given: Mapping[str, Any]) -> torch.Tensor:
    """`edge_updater` of a layer whose edges are updated one by one: (E_p, …)."""
    update, rows, shape = _of_edge(layer, layer.edge_update, edges, given)
    y = streamed(edges.graph, update, None, rows["_j"], rows["_i"], rows[""])
    return y.view(len(y), *shape)


def _of_edge(
    layer: Any, method: Callable[..., Any], edges: SpreadEdges, given: Mapping[str, Any]
) -> tuple[Callable[[dict[str, Any]], Any], dict[str, dict[str, torch.Tensor]], list[Any]]:
    """(the method as a function of rows by name, the rows by `_reduced`, the shape of its result of an edge, which is
    known after a call).
    """
    values, fixed = Values(layer, edges, given), {}
    rows: dict[str, dict[str, torch.Tensor]] = {"_j": {}, "_i": {}, "": {}}
    for parameter in inspect.signature(method).parameters.values():
        if not _wanted(parameter, values):
            continue
        name = parameter.name
        end = name[-2:] if name != values.stem(name) else ""
        value = values.of_node(name) if end else given[name]
        if isinstance(value, torch.Tensor):
            rows[end][name] = value
        else:
            fixed[name] = value
    shape: list[Any] = []

    def message(found: dict[str, Any]) -> Any:
        none = not any(len(each) for each in found.values())  # of no edges, view(0, -1) would have no answer
        ends = {
            name: torch.cat([each, each.new_zeros(1, *each.shape[1:])]) if none else each
            for name, each in found.items()
        }
        ends = {name: each if name in rows[""] else _rows_back(layer, each) for name, each in ends.items()}
        with _of_message(layer):
            made = method(**ends, **fixed)
            made = _rows_first(layer, made) if method.__name__ == "message" else made
        made = made[:0] if none else made
        shape[:] = made.shape[1:]
        return matrix(made)

    return message, rows, shape


def _reduced(
    edges: SpreadEdges, reduce: Any, message: Callable[..., Any], rows: Mapping[str, Mapping[str, torch.Tensor]]
) -> torch.Tensor:
    """Messages along edges, reduced. rows: {'_j', '_i', '': {name: rows of sources, destinations, edges}}."""
    source, target, edge = rows["_j"], rows["_i"], rows[""]
    if edges.place is None:
        if isinstance(reduce, str | tuple):
            return streamed(edges.graph, message, reduce, source, target, edge)

        def weighed(found: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
            made = message(found)
            return made * reduce.t, made

        return streamed(edges.graph, weighed, "softmax", source, target, edge)
    count = edge_count(edges.graph)
    stay = edges.place < count
    onto, loops = edges.place[stay], edges.place[~stay] - count

    def spread(value: torch.Tensor) -> torch.Tensor:
        return value.new_zeros(count, *value.shape[1:]).index_copy(0, onto, value[stay])

    def of_those(found: dict[str, Any]) -> torch.Tensor:
        there = found.pop("stays") != 0
        return torch.where(there, message(found), 0.0)

    there = torch.zeros(count, 1).index_fill(0, onto, 1.0)
    given = {**{name: spread(value) for name, value in edge.items()}, "stays": there}
    y = streamed(edges.graph, of_those, "sum", source, target, given)
    own = {name: value[loops] for name, value in {**source, **target}.items()}
    y = y.index_add(0, loops, message({**own, **{name: value[~stay] for name, value in edge.items()}}))
    if reduce == "mean":
        y = y / torch.bincount(edges.targets, minlength=len(y)).clamp(min=1).to(y.dtype)[:, None]
    return y
