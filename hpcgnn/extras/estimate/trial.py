"""The real program on a small copy of a rank: a first epoch, a measured one, and an evaluation.

A profile's code counts memory (plugins/account.py), streams and the ledger count messages.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from hpcgnn.engine.bound import work_of_epoch
from hpcgnn.engine.epochs import costs_of_epoch
from hpcgnn.engine.probe import StepProbe
from hpcgnn.engine.trainer import Trainer
from hpcgnn.engine.views import layers_to_prune
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.stream import Use
from hpcgnn.extras.estimate.small_copy import GhostCommunicator, Size, make_copy
from hpcgnn.extras.estimate.traffic import Place, place_of
from hpcgnn.memory.resident import PeakMemory, resident_bytes, trim_heap
from hpcgnn.ops.row_tiles import tile_rows, tiles_of
from hpcgnn.plan.rules import COUNTING_RULES
from hpcgnn.plan.run_plan import RunPlan, check
from hpcgnn.plugins.account import MADE, held_bytes, make_account
from hpcgnn.plugins.memory_use import LiveTensors, MemoryProfile
from hpcgnn.plugins.registry import make_plugins
from hpcgnn.schedules.tma import TmaConfig
from hpcgnn.tasks.base import EpochWork

# The model learns nothing, which could end in numbers that are not finite, but the optimizer has its work.
LR = 1e-9
# Largest number of rounds of a copy's halo: more take minutes, and only add calls.
ROUNDS = 64
MAKING = "making"
#: {model: `code` of an Experiment}: a second one of the same model finds all of it there.
CODE: dict[str, int] = {}


@dataclass
class Trial:
    """The cost of a copy. With several stages, all but the memory is the last stage's.

    Attributes:
        account: {(stage, phase): {item: bytes}}, see plugins/account.py; MAKING is the phase before the first epoch.
        loaded, parameters: bytes of the graph, and number of parameters.
        uses: {Place: {Use: times}} of streams in one epoch.
        streams: {Place: {Use of any kind: how many streams have had it}}.
        sent: {kind: (messages, bytes)} of the ledger.
        summed: (messages, bytes) of sums over ranks.
        gathered: numbers that the streams of an epoch read along edges.
        multiplied: multiplications of the products of an epoch, see engine/bound.py.
        evaluation: uses and sent of one evaluation.
        boundary: (rows sent, rows received) in one pass.
        prunable, worthwhile, pruned: see graph/transforms/pruning.py, and the number of pruned last layers.
    """

    account: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict)
    loaded: int = 0
    uses: dict[Place, Counter[Use]] = field(default_factory=dict)
    streams: dict[Place, Counter[Use]] = field(default_factory=dict)
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)
    summed: tuple[int, int] = (0, 0)
    gathered: int = 0
    multiplied: int = 0
    evaluation: "Trial | None" = None
    boundary: tuple[int, int] = (0, 0)
    prunable: int = 0
    worthwhile: list[float] = field(default_factory=list)
    pruned: int = 0
    parameters: int = 0

    def repeat(self, passes: int, moves: int = 1, sums: int = 1) -> None:
        """As often as an epoch, or an evaluation, has passes through the model, moves, and sums of a metric."""
        times = {"allreduce": moves, "halo_forward": passes, "halo_backward": passes, "input": passes}
        self.sent = {
            kind: (number * times.get(kind, 1), size * times.get(kind, 1)) for kind, (number, size) in self.sent.items()
        }
        self.uses = {
            place: Counter({use: count * passes for use, count in uses.items()}) for place, uses in self.uses.items()
        }
        self.summed = self.summed[0] * sums, self.summed[1] * sums
        self.gathered, self.multiplied = self.gathered * passes, self.multiplied * passes


@dataclass(frozen=True)
class Experiment:
    """The subject of a trial: the plan of a run. Tiles and memory depend on the configured threads (one by default).

    Attributes:
        probe: of a step on a small graph.
        code: bytes of libraries that this process loaded for the model.
        work: of an epoch on the graph file.
    """

    plan: RunPlan
    probe: StepProbe
    code: int = 0
    work: EpochWork = field(default_factory=EpochWork)

    @classmethod
    def of(cls, plan: RunPlan, work: EpochWork | None = None) -> "Experiment":
        """Return the Experiment of a plan, with the width of rows on a small graph. Raises ConfigError for uncounted
        messages.

        Timed rounds have one step here. Nothing is learned, for training could end in numbers that are not finite.
        """
        check(plan, COUNTING_RULES)
        plan = plan.changed(lr=LR, halo="rows")
        if cast(TmaConfig, plan.config.schedule).average_seconds:
            plan = plan.changed(average_steps=1, average_seconds=0.0)
        trim_heap()
        before, probe = resident_bytes(), StepProbe.of(plan, make_plugins)
        trim_heap()
        code = CODE.setdefault(plan.spec.options.model, max(0, resident_bytes() - before))
        return cls(plan, probe, code, work or EpochWork())

    @property
    def limit(self) -> int:
        """Bytes of the halo buffers."""
        return int(self.plan.config.schedule.halo_buffer * 2**20)

    @property
    def tile(self) -> int:
        """Rows that a rank of the job works on at a time (see ops/row_tiles.py)."""
        return tile_rows(self.plan.config.run.threads or 1)

    def try_out(
        self, size: Size, degrees: np.ndarray, factor: float = 1.0, pruned: int | None = None, tile: int | None = None
    ) -> Trial:
        """Return the Trial of a copy of a rank.

        Args:
            size: the rank's numbers.
            degrees: degrees of a sample of nodes.
            factor: size of the copy as a part of the rank.
            pruned: number of pruned last layers, if the schedule prunes; None leaves it to the copy.
            tile: rows per tile (None: the job's).
        """
        with tiles_of(tile or self.tile):
            return self._try_out(size.scaled(factor), degrees, factor, pruned)

    def _try_out(self, small: Size, degrees: np.ndarray, factor: float, pruned: int | None) -> Trial:
        plan, row_bytes = self.plan.changed(intra_node="messages"), self.probe.row_bytes
        most = max(small.inward.most, small.outward.most if small.outward else 0)
        least = 3 * row_bytes * max(3, -(-most // ROUNDS))
        buffers = HaloBuffers(max(round(self.limit * factor), least))
        buffers.declare(max(1, row_bytes))
        cap = max(1, buffers.cap(buffers.widest_row))
        comm = GhostCommunicator(small.ranks)
        local = make_copy(small, degrees, plan, cap, comm)
        profile = MemoryProfile(PeakMemory(), buffers.arena, LiveTensors())
        loaded = held_bytes((local.inward, local.outward, local.features, local.labels, local.split), set())
        loaded += local.original_id.nbytes

        def prune_as_found(model: Any) -> None:
            for back, conv in enumerate(reversed(model.convs if pruned is not None else ())):
                conv.worthwhile = 1.0 if back < cast(int, pruned) else -1.0

        with LiveTensors() as making:
            trainer = Trainer(local, plan, comm, buffers, make_plugins, profile, adapt=prune_as_found)
        account: dict[tuple[int, str], dict[str, int]] = {}
        evaluates = plan.config.run.eval_every > 0
        for number in range(len(trainer.stages)):
            trainer.begin_stage(number, 0)
            trainer.step(0)
            with _looking(trainer) as found:
                trainer.step(1)
                costs_of_epoch(trainer)
            held = make_account(trainer, local, profile)
            with _looking(trainer) as evaluation:
                trainer.evaluate()
            if evaluates:
                held = make_account(trainer, local, profile)
            account |= {(number, phase): items for phase, items in held.items()}
            profile.taken.clear()
        nothing = dict.fromkeys(next(iter(account.values())), 0)
        account[0, MAKING] = nothing | {"graph structure and plan": loaded, MADE: making.height}
        found.account, found.evaluation = account, evaluation
        for stream, uses in _uses(trainer).items():
            if (place := place_of(stream, trainer.views)) is not None:
                found.streams.setdefault(place, Counter()).update({use._replace(kind="") for use in uses})
        found.boundary = local.inward.plan.num_boundary, local.inward.plan.num_halo
        found.loaded = loaded
        found.multiplied, _ = work_of_epoch(trainer)
        found.repeat(self.work.passes, self.work.moves)
        evaluation.repeat(sum(self.work.judged.values()), sums=len(self.work.judged))
        found.parameters = sum(p.numel() for p in trainer.model.parameters())
        if plan.prunes:
            found.worthwhile, found.prunable = layers_to_prune(trainer.model)
            found.pruned = sum(share is not None for share in trainer.views.shares)
        return found


@contextlib.contextmanager
def _looking(trainer: Trainer) -> Iterator[Trial]:
    """Yield a Trial of the body: uses, sent, summed and gathered."""
    found, before, comm = Trial(), _uses(trainer), cast(GhostCommunicator, trainer.comm)
    sent, (messages, size) = comm.ledger.total(), comm.summed
    yield found
    found.summed = comm.summed[0] - messages, comm.summed[1] - size
    for kind, now in comm.ledger.total().items():
        then = sent.get(kind, dict.fromkeys(now, 0))
        if now != then:
            found.sent[kind] = now["messages"] - then["messages"], now["bytes_sent"] - then["bytes_sent"]
    for stream, uses in _uses(trainer).items():
        place = place_of(stream, trainer.views)
        used = uses - before.get(stream, Counter())
        edges = sum(block.num_edges for block in (stream.own, *getattr(stream, "halo", ())))
        found.gathered += edges * sum(
            times * sum(form.width for form in (use.rows, use.back) if form) for use, times in used.items()
        )
        if place is not None and used:
            found.uses[place] = found.uses.get(place, Counter()) + used


def _uses(trainer: Trainer) -> dict[Any, Counter[Use]]:
    return {each: each.uses.copy() for each in trainer.buffers.streams if hasattr(each, "uses")}
