"""The graph as layers see it: features, an `aggregate` to call, dropout, sums over all nodes. No schedule, no MPI.

A schedule makes this object, and decides how `aggregate` gets remote rows (streamed, sampled, or frozen).
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import torch

from hpcgnn import kernels
from hpcgnn.errors import GraphError
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graph.split import EdgeList
from hpcgnn.kernels import RowScores
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.additive_attention import Attending
from hpcgnn.ops.attention_layer import attention_layer
from hpcgnn.ops.draws import Drop, EluDropout, Purpose, Randomness, ReluDropout, dropout
from hpcgnn.ops.edge_rules import RowMessages, attend_by_scores, reduce_messages
from hpcgnn.ops.handover import Handover
from hpcgnn.ops.layer_input import ConstantRows, DroppedRows, Input, combine
from hpcgnn.ops.operators import Attention, InDegree, Made, Messages, Operator, Relational, WeightedSum
from hpcgnn.ops.propagate import Remade, Rule
from hpcgnn.ops.row_functions import RowFunction
from hpcgnn.ops.row_tiles import Matrix, sum_type

Activated = TypeVar("Activated", ReluDropout, EluDropout)
#: total(tensor): its sum over ranks. constant(name, compute): the result of compute(), made once.
Total = Callable[[torch.Tensor], torch.Tensor]
Rows = TypeVar("Rows", torch.Tensor, Matrix)
Constant = Callable[[str, Callable[[], Any]], Any]
#: (x (n_p, d), W (d, d_out), purpose of the draws).
Part = tuple[Matrix, torch.Tensor, Purpose]


class Operators(Protocol):
    """The part of a halo policy (schedules/base.py) that a graph uses."""

    def operator(self, description: Operator[Made]) -> Made:
        """The operator of this description. By all ranks together. Raises ConfigError."""


class Graph:
    """A rank's view of the graph.

    With pruned rows, the graph of a layer has fewer nodes. Then ids and inputs x are those of the input nodes, and
    outputs and aggregates those of the computed nodes, `own(x)`.

    Attributes:
        features: (n_p, F) Matrix or SparseRows.
        num_nodes: number of nodes over all ranks.
        ids: int64 (n_p,) original ids.
        in_degree: float64 (n_p,), number of in-edges in use.
        node_type: int64 (n_p,).
        edge_weight, edge_type, edge_features: (E_p,), (E_p,), (E_p, F_e) of the owned nodes' in-edges, in the order of
            `propagate`; None if the graph has none. Added self loops have the weight 1, the number of types as their
            type, and the mean features of the node's other in-edges.
        aggregate: aggregate(x, norm): owned rows (n_p, F) -> (n_p, F), differentiable, collective; norm is 'sum',
            'mean' or 'sym'.
        relate: relate(x, coefficients, bases): see ops/relational.py.
        total: total(tensor): the float64 sum over ranks, collective.
        arena: where large tensors are from.
    """

    def __init__(
        self,
        local: LocalGraph,
        halo: Operators,
        total: Total,
        random: Randomness,
        constant: Constant,
        arena: Arena,
        changing: Sequence[torch.Tensor] = (),
    ) -> None:
        """changing: (n_p, D) each, columns of the features that change from step to step."""
        self._local, self._halo, self._random, self.arena, self._changing = local, halo, random, arena, changing
        self.ids, self.num_nodes = local.original_id, local.num_nodes
        self.total, self.constant = total, constant
        self.operator = halo.operator
        self._calls = 0, 0
        self._layers: dict[int, Graph] = {}

    def at(self, layer: int) -> "Graph":
        """The graph as the layer of this number sees it."""
        return self._layers.get(layer, self)

    def pruned(self, shares: Mapping[int, tuple[LocalGraph, Operators]]) -> "Graph":
        """Return the same graph, with a pruned share for some layers. shares: {layer: (LocalGraph, halo policy)}."""
        whole = copy.copy(self)
        whole._layers = {
            layer: Graph(local, halo, self.total, self._random, self.constant, self.arena, self._changing)
            for layer, (local, halo) in shares.items()
        }
        return whole

    def seen_with(self, self_loops: str) -> "Graph":
        """Return the graph with self loops added ('add') or the edges as they are ('keep').

        In a job `--self-loops` decides, and this is the graph itself.
        """
        return self

    @property
    def features(self) -> Matrix | SparseRows:
        """Return the (n_p, F) Matrix or SparseRows: constant columns first, then changing ones."""
        fixed = self._local.features
        if not self._changing or not isinstance(fixed, torch.Tensor):
            return fixed
        parts = [fixed, *self._changing] if fixed.shape[1] else self._changing
        return torch.cat(list(parts), 1) if len(parts) > 1 else parts[0]

    def with_columns(self, *columns: torch.Tensor) -> "Graph":
        """The same graph with more columns (n_p, D) of the features, which change; no layer is pruned."""
        other = copy.copy(self)
        other._changing = (*self._changing, *columns)
        return other

    def from_call(self, number: int) -> "Graph":
        """The same graph, with the draws of functions of rows from this call on: they are the same each time."""
        other = copy.copy(self)
        other._calls = self._random.epoch, number - 1
        return other

    @property
    def position(self) -> torch.Tensor:
        """Positions (n_p, D) of the own nodes. Raises GraphError where the file has none."""
        if self._local.position is None:
            raise GraphError.on_all("graph.position: the graph file has no positions; import the graph with them")
        return self._local.position

    def own(self, x: torch.Tensor) -> torch.Tensor:
        """The rows of x (n_p, F) whose nodes a layer computes: x itself where it computes all. Differentiable."""
        outputs = self._local.outputs
        return x if outputs is None else x.index_select(0, outputs)

    def over(self, local: LocalGraph, halo: Operators, total: Total | None = None) -> "Graph":
        """Another LocalGraph with its own verbs and constants, the same randomness, and, unless given, the same
        `total`.
        """
        constants: dict[str, torch.Tensor] = {}

        def constant(name: str, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
            if name not in constants:
                with torch.no_grad():
                    constants[name] = compute()
            return constants[name]

        return Graph(local, halo, total or self.total, self._random, constant, self.arena)

    @property
    def in_degree(self) -> torch.Tensor:
        return self.operator(InDegree())

    @cached_property
    def node_type(self) -> torch.Tensor:
        kinds = self._local.node_type
        return torch.zeros(len(self.ids), dtype=torch.int64) if kinds is None else kinds.long()

    @property
    def weighted(self) -> bool:
        """Whether edges have weights, which `aggregate` counts them by."""
        return self._local.inward.own.weight is not None

    @property
    def edge_weight(self) -> torch.Tensor | None:
        """(E_p,) of the in-edges of own nodes, or None where the graph has none."""
        return self._edges.weight

    @property
    def edge_type(self) -> torch.Tensor | None:
        """int64 (E_p,), likewise."""
        kinds = self._edges.type
        return None if kinds is None else kinds.long()

    @property
    def stored_edge_type(self) -> torch.Tensor | None:
        """int32 (E_p,): `edge_type` without a copy."""
        return self._edges.type

    @property
    def edge_features(self) -> torch.Tensor | None:
        """(E_p, F_e) of the dtype of the features, likewise: rows to give `propagate` as `edge`."""
        return self._edges.features

    @property
    def _edges(self) -> EdgeList:
        edges = self._local.inward.edges
        assert edges is not None, "models that read edges have them kept"
        return edges

    def activation(self, kind: Callable[[torch.Tensor, int, float], Activated], p: float, layer: int) -> Activated:
        """kind (see ops/draws.py) with dropout of rate p, for a layer to apply to its own input."""
        return kind(self.ids, self._random.key(Purpose.DROPOUT, layer), p)

    def aggregate(self, x: Rows, norm: str) -> Rows:
        """Aggregate owned rows x (n_p, F) -> (m, F). Differentiable, collective.

        For a matrix on disk, the result goes to disk too if it does not fit in memory, and has no gradient.

        Args:
            x: owned rows.
            norm: 'sum', 'mean' or 'sym'.
        """
        if not isinstance(x, torch.Tensor):
            return x.mapped(lambda columns: self.aggregate(columns, norm))
        return self.operator(WeightedSum(norm, x.dtype))(x)

    def combine(
        self,
        parts: Sequence[Part],
        bias: torch.Tensor | None,
        p: float,
        layer: int,
        kept: torch.dtype | None = None,
        *,
        scaled: bool = False,
    ) -> torch.Tensor:
        """Σ dropout_p(x) W + b of constants; see ops/layer_input.py. scaled: whether dropout of an aggregate has the
        noise of a mean of rows.
        """
        scales = self._local.feature_scales
        if layer == 0 and scales is not None:  # factors of features in codes
            parts = [(x, weight * scales[:, None], purpose) for x, weight, purpose in parts]
        found = [(x, weight, self._drop(purpose, p, layer, scaled)) for x, weight, purpose in parts]
        return combine(found, bias, self.arena, self._local.outputs, kept)

    def _drop(self, purpose: Purpose, p: float, layer: int, scaled: bool) -> Drop | None:
        """Dropout of a constant for a purpose, or None."""
        if p == 0:
            return None
        share = self._local.noise_of_mean if scaled and purpose == Purpose.DROPOUT_AGGREGATE else None
        return Drop(self._local.output_id, self._random.key(purpose, layer), p, share)

    def attention_layer(
        self,
        x: torch.Tensor | ConstantRows | Handover,
        weight: torch.Tensor | None,
        how: Attending,
        layer: int,
        *,
        hand_over: bool = False,
    ) -> Any:
        """Additive attention to x W, plus the bias, as one operator: a tensor, or a Handover if `hand_over`.

        See ops/attention_layer.py. how: its key is that of the epoch and the layer.
        """
        how = replace(how, key=self._random.key(Purpose.DROPOUT_ATTENTION, layer))
        if isinstance(x, ConstantRows) and weight is not None:
            weight = x.scaled(weight)
        return attention_layer(x, weight, self.operator(Attention(how.shape)), how, hand_over=hand_over)

    def relate(self, x: torch.Tensor, coefficients: torch.Tensor, *weights: torch.Tensor | None) -> torch.Tensor:
        """Relational aggregation of own rows x (n_p, d_in); see ops/relational.py. Differentiable, collective."""
        return self.operator(Relational(len(coefficients), x.dtype))(x, coefficients, *weights)

    def propagate(
        self,
        message: RowFunction,
        reduce: str | Sequence[str] = "sum",
        *,
        x_src: SparseRows | Input,
        x_dst: torch.Tensor | None = None,
        edge: torch.Tensor | None = None,
        dropout: float = 0.0,
        layer: int = 0,
        scores: RowScores | RowMessages | None = None,
    ) -> torch.Tensor:
        """Reduce the messages of each owned node's in-edges to (n_p, F). Differentiable, collective.

        Nodes without in-edges get zeros. Gradients reach x_src, x_dst, edge (unless it holds integers), and the
        parameters of `message`.

        Args:
            message: a torch function. It gets rows (E, …) of x_src at the sources and, where given, of x_dst at the
                destinations and of edge, in this order. It returns messages (E, F), or for 'softmax' (logits (E, H),
                values (E, H × width)). The backward pass calls it again with the same rows and the same state of
                torch's generator, so it must not depend on other changing data. Its random draws differ with the number
                of ranks.
            reduce: 'sum', 'mean', 'max', 'min', 'std', several of them (joined by columns), or 'softmax'. In the last
                case, the softmax of the logits over a node's in-edges weighs the values per head.
            x_src, x_dst: owned rows.
            edge: (E_p, …), rows of the in-edges.
            dropout: rate of dropped softmax weights, drawn by epoch, layer, edge and head, independent of the ranks.
            layer: number of the layer.
            scores: how the logits follow from whole rows, or the messages from a source's row and the edge's features.
                `message` is not called then, if there are kernels for that.

        Raises:
            ValueError: an argument does not fit.
        """
        self._check_edges("propagate", edge)
        rule = Rule(message, reduce, self._seed(), self._random.key(Purpose.DROPOUT_ATTENTION, layer), dropout)
        x_src, operator = _dense(x_src), self.operator(Messages())
        if isinstance(scores, RowMessages):
            return reduce_messages(operator, rule, scores, x_src, edge)
        if isinstance(scores, RowScores) and x_dst is not None and kernels.rules_rows(x_src, x_dst):
            return attend_by_scores(operator, rule, scores, x_src, x_dst)
        return operator(rule, x_src, x_dst, edge)

    def propagate_shared(
        self,
        message: RowFunction,
        *,
        x_src: torch.Tensor | Remade,
        x_dst: torch.Tensor | Remade | None = None,
        edge: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(edge, sums of messages (n_p, F)): as `propagate` by 'sum', for rows of edges that several layers read.

        Only another call of this method may read the rows that are returned. All layers then add to one gradient of the
        rows, in place, where two matrices of edges for each would be made otherwise.
        """
        self._check_edges("propagate_shared", edge)
        rule = Rule(message, "sum", self._seed(), hands_on=True)
        return self.operator(Messages())(rule, x_src, x_dst, edge)

    def update_edges(
        self,
        function: RowFunction,
        *,
        x_src: SparseRows | Input | Remade,
        x_dst: torch.Tensor | Remade | None = None,
        edge: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(new rows (E_p, F) of the owned nodes' in-edges, from those at their ends and their own; their sums (n_p, F)
        for each owned node). Differentiable, collective.

        Of a layer only `edge`, the rows of nodes and the result are kept. Hidden rows exist for some edges at a time.
        Gradients reach x_src, x_dst, edge, and the parameters of `function`.

        Args:
            function: of rows (E, …), as the message function of `propagate`: it returns (E, F).
            x_src, x_dst: owned rows; of Remade none are kept.
            edge: (E_p, …), rows of the in-edges.

        Raises:
            ValueError: an argument does not fit.
        """
        self._check_edges("update_edges", edge)
        x_src = x_src if isinstance(x_src, Remade) else _dense(x_src)
        if edge is None:  # the result has a row for each edge in any case
            given, function = cast(Any, function), lambda *rows: given(*rows[:-1])
            edge = (x_src.rows if isinstance(x_src, Remade) else x_src).new_empty(self._edges.count, 0)
        return self.operator(Messages())(Rule(function, None, self._seed()), x_src, x_dst, edge)

    def _check_edges(self, method: str, edge: torch.Tensor | None) -> None:
        """Raise ValueError unless there is a row of `edge` for each in-edge."""
        if edge is not None and len(edge) != self._edges.count:
            raise ValueError(
                f"{method}: expected a row of `edge` for each of the {self._edges.count} in-edges of own nodes, got "
                f"{len(edge)}"
            )

    def _seed(self) -> int:
        """Of the draws of a function of rows, by epoch and call."""
        self._calls = self._random.epoch, self._calls[1] + 1 if self._calls[0] == self._random.epoch else 0
        return self._random.key(Purpose.MESSAGE, self._calls[1])

    def dropout(self, x: torch.Tensor | SparseRows, p: float, layer: int, purpose: Purpose = Purpose.DROPOUT) -> Any:
        """Dropout with draws keyed by epoch, layer, original node id and column: of a (n_p, F) tensor, or DroppedRows
        of SparseRows.
        """
        key = self._random.key(purpose, layer)
        if isinstance(x, SparseRows):
            return DroppedRows(x, self.ids, key, p)
        return dropout(x, self.ids, key, p)

    def constant_rows(self, x: Matrix | SparseRows, p: float, layer: int) -> Input:
        """As `dropout`, for a layer that reads some rows at a time: of rows that never change no copy is made."""
        if isinstance(x, SparseRows) or (
            isinstance(x, torch.Tensor) and x.dtype == sum_type(x.dtype) and (x.requires_grad or p == 0)
        ):
            return self.dropout(x, p, layer)
        key, local = self._random.key(Purpose.DROPOUT, layer), self._local
        drops = (Drop(self.ids, key, p), Drop(local.output_id, key, p)) if p else (None, None)
        return ConstantRows(x, drops, self.arena, local.feature_scales)


def _dense(x: SparseRows | Input) -> torch.Tensor:
    if not isinstance(x, torch.Tensor):
        raise GraphError(
            "this layer needs rows of numbers, and the features are sparse; use a model that transforms them first, or "
            "import the graph with dense features"
        )
    return x
