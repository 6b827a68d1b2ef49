"""The edge_index of a rank, for layers of PyG that read it.

A rank has all in-edges of its nodes. So it knows their destinations, and counts and sums over the in-edges of a node
are exact. Of the sources it knows nothing: their rows are elsewhere. `SpreadEdges` stands in for edge_index (2, E). Its
second row is the real one, numbered from 0 to n_p - 1. Its first row can do one thing: pick rows, x[edge_index[0]],
which is an exchange with the other ranks. Self loops can be taken out and added. Everything else is an error, never a
wrong number. PyG's own gcn_norm, degree, softmax, remove_self_loops and add_self_loops run on it unchanged.
"""

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import torch
from torch import nn

from hpcgnn.errors import ConfigError
from hpcgnn.extras.pyg.rules import matrix
from hpcgnn.nn.graph import Graph

#: Every number of a source: larger than any row, so that no function can take it for one.
_NOWHERE = 2**62
#: What may be asked of a tensor without reading it.
_HARMLESS = {
    "size",
    "dim",
    "numel",
    "__len__",
    "is_floating_point",
    "is_complex",
    "element_size",
    "stride",
    "storage_offset",
}
_SAME = {"clone", "contiguous", "detach", "to", "long", "cpu"}
_loops: "weakref.WeakKeyDictionary[Graph, torch.Tensor]" = weakref.WeakKeyDictionary()


def unavailable(what: str) -> NoReturn:
    """Raise ConfigError, on all ranks, which run the same layer."""
    raise ConfigError.on_all(f"from_pyg_layer: this layer {what}")


def refuse(layer: nn.Module, why: str, remedy: str) -> NoReturn:
    """Raise ConfigError, on all ranks."""
    raise ConfigError.on_all(f"from_pyg_layer: {type(layer).__name__} does not fit: {why}; {remedy}")


class _Stand(torch.Tensor):
    """A tensor whose numbers nobody may read."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", str(func)), kwargs or {}
        if name in _HARMLESS or name == "__get__":
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if name in _SAME:
            return args[0]
        for handler in (cls, SpreadEdges, Sources):
            found = vars(handler).get("answers", {}).get(name)
            if found is not None and any(isinstance(each, handler) for each in _flat(args, kwargs)):
                result = found(*args, **kwargs)
                if result is not NotImplemented:
                    return result
        unavailable(f"uses edge_index for more than rows at its sources ({name}), and a rank has only its part of it")

    answers: ClassVar[dict[str, Callable[..., Any]]] = {}


def _flat(args: Any, kwargs: Any) -> list[Any]:
    return [x for each in (*args, *kwargs.values()) for x in (each if isinstance(each, tuple | list) else (each,))]


class SpreadEdges(_Stand):
    """edge_index (2, E) of a rank.

    Attributes:
        place: int64 (E,), where each edge stands in the rank's list of E_p edges, or E_p + i for the loop of node i;
            None for that list itself.
        gathers: whether rows of several numbers may be picked for each edge.
    """

    graph: Graph
    place: torch.Tensor | None
    gathers: bool

    @staticmethod
    def of(graph: Graph, gathers: bool, place: torch.Tensor | None = None) -> "SpreadEdges":
        """Make them of a graph."""
        count = graph._local.inward.num_edges if place is None else len(place)
        edges = torch.Tensor._make_subclass(SpreadEdges, torch.full((1, 1), _NOWHERE).expand(2, count))
        edges.graph, edges.place, edges.gathers = graph, place, gathers
        return edges

    @property
    def places(self) -> torch.Tensor:
        """int64 (E,): `place`, in full."""
        return torch.arange(edge_count(self.graph)) if self.place is None else self.place

    @property
    def targets(self) -> torch.Tensor:
        """int64 (E,): own rows."""
        rows = torch.arange(len(self.graph.ids))
        ends = rows.repeat_interleave(self.graph._local.inward.edge_counts)
        return ends if self.place is None else torch.cat([ends, rows])[self.place]

    def loops(self) -> torch.Tensor:
        """bool (E,): the self loops. The first call is collective."""
        if self.graph not in _loops:
            whole = SpreadEdges.of(self.graph, False)
            _loops[self.graph] = whole.picked(self.graph.ids) == self.graph.ids[whole.targets]
        found = _loops[self.graph]
        return found if self.place is None else torch.cat([found, found.new_ones(len(self.graph.ids))])[self.place]

    def picked(self, x: torch.Tensor) -> torch.Tensor:
        """x (n_p, …) at the sources: (E, …). Differentiable, collective."""
        if len(x) != len(self.graph.ids):
            unavailable("picks from something that has no row for each node")
        if not self.gathers and x.numel() > len(x):
            unavailable(
                "needs the rows of both ends of all in-edges at once, E_p rows on a rank; expected "
                "from_pyg_layer(layer, keep_messages=True), which keeps them as PyG does"
            )
        rows = x if x.is_floating_point() else x.double()
        found = _AtSources.apply(matrix(rows), self.graph)
        if self.place is not None:
            found = torch.cat([found, matrix(rows)])[self.place]
        return found.reshape(len(found), *x.shape[1:]).to(x.dtype)

    def selected(self, key: Any) -> "SpreadEdges":
        """edge_index[:, key] for a mask, bool (E,)."""
        if not isinstance(key, torch.Tensor) or key.dtype != torch.bool or isinstance(key, _Stand):
            unavailable("picks edges by their position, and a rank has its own order of edges")
        return SpreadEdges.of(self.graph, self.gathers, self.places[key])


class Sources(_Stand):
    """edge_index[0] (E,)."""

    edges: SpreadEdges

    @staticmethod
    def of(edges: SpreadEdges) -> "Sources":
        """The sources of these edges."""
        sources = torch.Tensor._make_subclass(Sources, torch.full((1,), _NOWHERE).expand(edges.size(1)))
        sources.edges = edges
        return sources


def edge_count(graph: Graph) -> int:
    """E_p. Raises ConfigError, on all ranks, if edges are not kept."""
    edges = graph._local.inward.edges
    if edges is None:
        raise ConfigError.on_all("from_pyg_layer: this layer reads edge_index; say hpcgnn.load(…, edges=True)")
    return edges.count


def _take(edges: Any, key: Any) -> Any:
    if isinstance(edges, SpreadEdges):
        if isinstance(key, int):
            return Sources.of(edges) if key in (0, -2) else edges.targets
        both = isinstance(key, tuple) and len(key) == 2 and key[0] in (slice(None), ...)
        return edges.selected(key[1]) if both else NotImplemented
    if isinstance(edges, Sources):
        chosen = edges.edges.selected(key)
        others = (~chosen.loops()).sum().double().reshape(1)
        # All ranks decide alike: of loops the sources are known.
        return chosen.targets if float(edges.edges.graph.total(others)) == 0 else Sources.of(chosen)
    return key.edges.picked(edges) if isinstance(key, Sources) else NotImplemented


def _pick(x: torch.Tensor, dim: int, index: Any) -> Any:
    if not isinstance(index, Sources) or dim % x.dim() != 0:
        return NotImplemented
    return index.edges.picked(x)


def _compared(one: Any, other: Any) -> Any:
    sources, ends = (one, other) if isinstance(one, Sources) else (other, one)
    if isinstance(ends, _Stand) or not isinstance(ends, torch.Tensor):
        return NotImplemented
    return sources.edges.loops() if torch.equal(ends, sources.edges.targets) else NotImplemented


def _differs(one: Any, other: Any) -> Any:
    same = _compared(one, other)
    return same if same is NotImplemented else ~same


def _joined(parts: Any, dim: int = 0) -> Any:
    """edge_index with a self loop of every node behind it, as add_self_loops makes them."""
    if dim not in (1, -1) or len(parts) != 2 or not isinstance(parts[0], SpreadEdges):
        return NotImplemented
    edges, loops = parts
    rows = torch.arange(len(edges.graph.ids))
    if isinstance(loops, _Stand) or not torch.equal(loops, torch.stack([rows, rows])):
        unavailable("adds edges of its own to edge_index, whose rows are those of this rank alone")
    return SpreadEdges.of(edges.graph, edges.gathers, torch.cat([edges.places, edge_count(edges.graph) + rows]))


SpreadEdges.answers = {
    "__getitem__": _take,
    "cat": _joined,
    "unbind": lambda edges, dim=0: (Sources.of(edges), edges.targets) if dim == 0 else NotImplemented,
}
Sources.answers = {
    "__getitem__": _take,
    "index_select": _pick,
    "eq": _compared,
    "__eq__": _compared,
    "ne": _differs,
    "__ne__": _differs,
}


class _AtSources(torch.autograd.Function):
    """x (n_p, W) at the source of each in-edge: (E_p, W). Collective in both directions."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, graph: Graph) -> torch.Tensor:
        ctx.graph, count = graph, edge_count(graph)
        found = x.new_empty(count, x.shape[1])

        def keep(rows: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
            found[number[:, 0]] = rows.detach()
            return rows[:, :1]

        graph.propagate(keep, "sum", x_src=x, edge=torch.arange(count)[:, None])
        return found

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The gradient of Σ_e x[source(e)] · gy[e], made where the sources are."""
        with torch.enable_grad():
            x = gy.new_zeros(len(ctx.graph.ids), gy.shape[1], requires_grad=True)
            y = ctx.graph.propagate(lambda rows, g: rows * g, "sum", x_src=x, edge=gy.detach())
            return torch.autograd.grad(y, x, torch.ones_like(y))[0], None
