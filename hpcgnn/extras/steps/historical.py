"""More steps in an epoch (GNNAutoScale, GAS: Fey et al., ICML'21): historical halo × all-reduce.

An epoch is `--steps` K optimizer steps, each on a share of the clusters with all of its in-neighbours. Rows of the
share are fresh, all others are of the last time they were computed. No edge into a training node is left out, and each
row is computed once in an epoch. The activations of a step are those of 1/K of the rows.

A share computes no row that the loss never sees: the last layer computes its training nodes alone, the layer before
also its rows that training nodes of any share depend on, and so on. GAS and LMC compute all rows of a share in every
layer. Training reads the same rows.

`--set schedule.extra_rows=X` computes rows of other shares as well, those with most edges to the rows of the step, X
times as many as its own. Then gradients reach most edges with few more rows, for graphs have hubs.

Draws deal the clusters out to shares of about equal size, once in a run: blocks of edges are made once, too. The order
of the shares is drawn anew for each epoch. All draws follow from the seed and the numbers of the clusters, so the
result does not depend on the number of ranks or on the map.

A history holds the input of an aggregation: the product X W where a layer narrows its input, else X, and [X W | a_src]
of attention. Gradients reach fresh rows alone, as in GAS. So where X W is kept, the gradient of W comes from fresh rows
alone. LMC (Shi et al., ICLR'23) adds old gradients for the others. This was tried, and learning was less stable
(docs/schedules-measured.md).

A step's loss is its part of the mean over all training nodes. Its gradients are multiplied by the number of shares.

Before the first epoch, forward passes over all shares fill the histories, one for each aggregation: then they are those
of the initial parameters. Checkpoints hold the histories of each rank. With other ranks or another map they are filled
anew, from the parameters of the checkpoint.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.row_codec import NARROW
from hpcgnn.extras.steps.histories import HistoricalGradients, HistoricalRows, History
from hpcgnn.extras.steps.options import StepsConfig, options_of
from hpcgnn.extras.steps.share_rows import Draws, edges_of_rank, rows_of_layers, rows_of_shares
from hpcgnn.extras.steps.shares import Share, deal, split_in_shares
from hpcgnn.extras.steps.steps import StepsInTurn
from hpcgnn.graph.local import LocalGraph
from hpcgnn.nn.graph import Graph, Operators
from hpcgnn.nn.model import Model
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operator_context import HaloFacts, PushContext
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.schedules.base import OptimizerState, PushedHalo, Schedule, Stage, Step
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.schedules.sar import build_sar


class HistoricalHalo(FullHalo):
    """A FullHalo for evaluation, with the shares and histories of training. Made collectively. options: with the
    number of shares; random: for their draws.

    Attributes:
        num_shares: how many have nodes on some rank.
        shares: the Shares, once for layers that take and compute the same rows.
        computed: int64, the own rows of each share in the last layer, once they are made.
        histories: one for each aggregation of the model, in the order of the calls.
        filled: whether they hold rows.
    """

    def __init__(
        self, local: LocalGraph, comm: Communicator, buffers: HaloBuffers, options: StepsConfig, random: Randomness
    ) -> None:
        self._facts = HaloFacts(local, comm)
        super().__init__(local, comm, buffers, facts=self._facts)
        self.has_state, self.filled = True, False
        cluster = torch.zeros(local.num_owned, dtype=torch.int32) if local.cluster is None else local.cluster
        self._dealt, self.num_shares = deal(cluster, options.steps, random.key(Purpose.SHARE, 0), comm)
        self._extra, self._random, self._kind = options.extra_rows, random, NARROW[options.history_dtype]
        self.shares: list[list[Share]] = []
        self.histories: list[History] = []
        self._call = 0

    def split(self, model: Model) -> list[dict[int, tuple[LocalGraph, Operators]]]:
        """Make the shares. Collective. Returns for each {layer: (its LocalGraph, its policy)}."""
        local, comm, layers, kept = self._local, self._comm, len(model.convs), model.spec.keeps_input
        edges, draws = edges_of_rank(local, comm), Draws(self._random, local.original_id, comm)
        prunable = model.prunable_layers
        reach = rows_of_layers(local.mask("train"), layers, prunable, edges)
        rows = rows_of_shares(self._dealt, reach, prunable, edges, draws, self.num_shares, self._extra)
        self.computed = rows[-1]
        ids = torch.cat([local.original_id, self._facts.inward_ids()])
        views: list[dict[int, tuple[LocalGraph, Operators]]] = [{} for _ in range(self.num_shares)]
        for layer, (taken, computed) in enumerate(itertools.pairwise(rows)):
            if layer == 0 and kept:  # it reads rows of a kept aggregate
                for view, numbers in zip(views, computed, strict=True):
                    view[layer] = replace(local, outputs=numbers.int()), self
                continue
            if not self.shares or self._differ(rows[layer - 1 : layer + 1], rows[layer : layer + 2]):
                self.shares.append(split_in_shares(local, taken, computed, comm, layer == 0))
            for view, share in zip(views, self.shares[-1], strict=True):
                view[layer] = share.local, ShareHalo(share, self, ids, comm, self._buffers, self._facts)
        return views

    def _differ(self, before: list[list[torch.Tensor]], now: list[list[torch.Tensor]]) -> bool:
        """Whether two layers take or compute other rows, on any rank. Collective."""
        pairs = zip(itertools.chain(*before), itertools.chain(*now), strict=True)
        differ = any(not torch.equal(one, other) for one, other in pairs)
        return bool(self._comm.total(torch.tensor([int(differ)]), "plan"))

    def begin(self) -> None:
        """Called before each forward pass: aggregations are known by their number in it."""
        self._call = 0

    def next_history(self) -> tuple[int, History]:
        """(number, History) of the next aggregation of a pass."""
        number, self._call = self._call, self._call + 1
        return number, self.history(number)

    def history(self, number: int) -> History:
        """The History of an aggregation."""
        if number == len(self.histories):
            local = self._local
            ids, key = local.original_id, lambda: self._random.key(Purpose.HISTORY, number)
            self.histories.append(History(local.num_owned + local.inward.plan.num_halo, self._kind, ids, key))
        return self.histories[number]

    @property
    def kept_bytes(self) -> int:
        """Bytes of the histories and of the shares, on this rank."""
        shares = sum(each.nbytes for alike in self.shares for each in alike)
        return sum(each.nbytes for each in self.histories) + shares

    def state(self) -> dict[str, torch.Tensor]:
        """{name: tensor} of the histories."""
        saved = ((number, each.state()) for number, each in enumerate(self.histories))
        return {f"{number:04d}{name}": tensor for number, state in saved for name, tensor in state.items()}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue from the saved `state` of the same rank, before the first epoch."""
        self.filled = True
        for number in range(len({name[:4] for name in tensors})):
            named = f"{number:04d}"
            of_it = {name.removeprefix(named): each for name, each in tensors.items() if name.startswith(named)}
            self.history(number).load_state(of_it)


class ShareHalo(PushedHalo):
    """Fresh rows of one share in one layer, and historical ones of all others. ids: original ids of all columns."""

    name = "historical"

    def __init__(
        self,
        share: Share,
        whole: HistoricalHalo,
        ids: torch.Tensor,
        comm: Communicator,
        buffers: HaloBuffers,
        facts: HaloFacts,
    ) -> None:
        self._share, self._whole, self._ids = share, whole, ids
        self._comm, self._buffers, self._facts = comm, buffers, facts
        self._operators: dict[int, tuple[Operator[Any], Any]] = {}

    def _make(self, description: Operator[Made]) -> Made:
        number, history = self._whole.next_history()
        if number not in self._operators:
            share, (inward, outward) = self._share, (self._share.local.inward, self._share.local.outward)
            crossing, both = share.crossing, (self._comm, self._buffers)
            used = HistoricalRows(history, crossing, inward.own, share.block, *both)
            push = HistoricalGradients(history, crossing, outward.own, share.near, lambda: share.back, *both)
            site = PushContext(share.local, used, push, self._facts, self._ids, old=True)
            self._operators[number] = description, description.pushed(site)
        known, operator = self._operators[number]
        assert known == description, "a model must call the same operators in the same order in every step"
        return operator


class StepsOfShares(StepsInTurn):
    """One stage, with a step for each share in every epoch. halo: HistoricalHalo."""

    def __init__(self, comm: Communicator, halo: HistoricalHalo, random: Randomness) -> None:
        super().__init__(comm, random)
        self._halo, self.count = halo, halo.num_shares
        self._graphs: list[Graph] = []

    def prepare(self, graph: Graph) -> None:
        """Make the shares."""
        self._graphs = [graph.pruned(views) for views in self._halo.split(self._model)]

    def steps(self, epoch: int, stage: Stage, graph: Graph, optimizers: Sequence[OptimizerState]) -> Iterator[Step]:
        """A step for each share."""
        halo = self._halo
        if not self._graphs:
            self.prepare(graph)
        if not halo.filled:
            self._fill(stage)
        for number in self.in_turn():
            halo.begin()
            yield Step(self._graphs[number], self.as_whole, nodes=halo.computed[number], share=1.0)

    def _fill(self, stage: Stage) -> None:
        """Compute the rows of all histories without gradients. An aggregation needs the rows of those before it."""
        halo, passes = self._halo, 1
        while passes:
            with torch.no_grad(), self._comm.ledger.booked_as("input"):
                for graph in self._graphs:
                    halo.begin()
                    stage.module(graph)
            passes = len(halo.histories) - 1 if not halo.filled else passes - 1
            halo.filled = True


def build_historical(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> Schedule:
    """Historical halo, all-reduce at every step; one step per epoch is `sar`."""
    options = options_of(config)
    if options.steps == 1:
        return build_sar(local, comm, buffers, config, random)
    halo = HistoricalHalo(local, comm, buffers, options, random)
    return Schedule(halo, StepsOfShares(comm, halo, random))
