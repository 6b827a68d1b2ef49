"""The parts of operators: a rank's share of the graph, the streams along its edges, facts that are found once, and the
step to autograd.

A layer asks its halo policy for an operator by a description (operators.py); the policy has the site that it is made
from.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.exchange.stream import RowStream, Stream
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.relations import relation_weights
from hpcgnn.memory.resident import give_back_heap


class HaloFacts:
    """Facts that the policies of a rank share: original ids of the halo, weights of typed edges. All ranks request each
    together.
    """

    def __init__(self, local: LocalGraph, comm: Communicator) -> None:
        self._local, self._comm = local, comm
        self._weights: dict[torch.dtype, tuple[torch.Tensor, torch.Tensor]] = {}
        self._ids: dict[bool, torch.Tensor] = {}

    def inward_ids(self) -> torch.Tensor:
        """int64, in the order of the halo. The first call is collective."""
        if True not in self._ids:
            self._ids[True] = gather_halo(self._local.inward.plan, self._local.original_id, self._comm)
        return self._ids[True]

    def outward_ids(self) -> torch.Tensor:
        """Likewise, of the other direction."""
        if self._local.outward is self._local.inward:
            return self.inward_ids()
        if False not in self._ids:
            self._ids[False] = gather_halo(self._local.outward.plan, self._local.output_id, self._comm)
        return self._ids[False]

    def relation_weights(self, kinds: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """See graph/relations.py."""
        if dtype not in self._weights:
            self._weights[dtype] = relation_weights(self._local, kinds, self._comm, dtype)
            give_back_heap()  # numbers of each edge have been there, some times over
        return self._weights[dtype]


@dataclass(frozen=True)
class OperatorContext:
    """Streams with the rows of now."""

    local: LocalGraph
    comm: Communicator
    inward: Stream
    outward: Stream
    facts: HaloFacts


@dataclass(frozen=True)
class PushContext:
    """Streams with some or old rows.

    Attributes:
        used, push: streams with the same rows, over blocks and over their transposes.
        ids: int64, original ids of the used rows; None: all of the halo are used.
        factor: factor of remote rows.
        added: added to the logits of remote edges.
        old: whether `push` is the adjoint of another epoch.
    """

    local: LocalGraph
    used: RowStream[Block]
    push: RowStream[Block]
    facts: HaloFacts
    ids: torch.Tensor | None = None
    factor: float = 1.0
    added: float = 0.0
    old: bool = False

    @property
    def halo_ids(self) -> torch.Tensor:
        """int64, the original ids of the rows that are used. By all ranks together."""
        return self.facts.inward_ids() if self.ids is None else self.ids


_TRAINS: ContextVar[bool] = ContextVar("a pass without autograd is of training", default=False)


@contextlib.contextmanager
def of_training() -> Iterator[None]:
    """Take the operators of training in the body, also without autograd."""
    before = _TRAINS.set(True)
    try:
        yield
    finally:
        _TRAINS.reset(before)


def trains() -> bool:
    """Whether a pass takes the operators of training."""
    return torch.is_grad_enabled() or _TRAINS.get()


def differentiable(operator: Any, *tensors: torch.Tensor | None) -> Any:
    """y of operator.forward(*tensors) -> (y, tensors to keep): a tensor, or a tuple of them.

    Its gradients are those of operator.backward(gy, wanted, *kept); wanted: bool for each of the tensors. gy is as y;
    in a tuple it is None where there is no gradient.
    """
    return _Differentiable.apply(operator, *tensors)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operator: Any, *tensors: torch.Tensor | None) -> torch.Tensor:
        y, kept = operator.forward(*tensors)
        ctx.save_for_backward(*kept)
        ctx.set_materialize_grads(False)
        ctx.operator, ctx.several = operator, isinstance(y, tuple)
        return y

    @staticmethod
    def backward(ctx: Any, *gy: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return None, *ctx.operator.backward(gy if ctx.several else gy[0], ctx.needs_input_grad[1:], *ctx.saved_tensors)
