"""The real program on a small copy of a rank: a first epoch, a measured one, and an evaluation.

A profile's code counts memory (plugins/account.py), streams and the ledger count messages. Calls of kernels and of
torch's operations give the work.
"""

import contextlib
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.engine.clock import unwatched
from hpcgnn.engine.epochs import costs_of_epoch
from hpcgnn.engine.trainer import Trainer
from hpcgnn.engine.views import TrainingPart, Views, layers_to_prune
from hpcgnn.estimate.trial.operations import PAGES, Operation, of_kernel, of_torch
from hpcgnn.estimate.trial.page_faults import Fresh
from hpcgnn.estimate.trial.places import Place, place_of, plans
from hpcgnn.estimate.trial.scaled_rank import Size, make_copy, on_ghost_node
from hpcgnn.estimate.trial.simulated_comm import GhostCommunicator, GhostMemory
from hpcgnn.estimate.trial.uncounted import check_counted
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.node_rows import NodeRows
from hpcgnn.exchange.stream import Use
from hpcgnn.graph.local import LocalGraph
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.nn.model import traits_of
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.offload.activations import Toy, toy_of
from hpcgnn.ops.row_tiles import tile_rows, tiles_of
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.plugins.account import MADE, held_bytes, make_account
from hpcgnn.plugins.live_tensors import LiveTensors, Onlooker
from hpcgnn.plugins.memory_profile import MemoryProfile, PeakMemory, trim_heap
from hpcgnn.plugins.registry import make_plugins
from hpcgnn.schedules.tma import TmaConfig

# The model learns nothing, which could end in numbers that are not finite, but the optimizer has its work.
LR = 1e-9
# Largest number of rounds of a copy's halo: more take minutes, and only add calls.
ROUNDS = 64
MAKING = "making"
#: {model: `code` of an Experiment}: a second one of the same model finds all of it there.
CODE: dict[str, int] = {}
#: A function of an operation, its amounts, and its Cost.
Add = Callable[[Operation, tuple[float, float], "Cost"], None]


@dataclass
class Trial:
    """The cost of a copy. With several stages, `work` is the mean epoch; uses and sent are the last stage's.

    Attributes:
        account: {(stage, phase): {item: bytes}}, see plugins/account.py; MAKING is the phase before the first epoch.
        loaded, parameters, epochs: bytes of the graph, number of parameters, and epochs of all stages of a run
            together.
        uses, halo: {Place: {Use: times}} of streams in one epoch, and {place: rows}.
        sent, summed: {kind: (messages, bytes)} of the ledger, and the part of them in sums over ranks.
        work, seconds: {Operation: (calls, rows or numbers, edges or bytes)} of one epoch, and {Operation: processor
            seconds}.
        pages: {Operation: pages of memory that the system allocated to this process meanwhile}.
        evaluation: uses, sent and work of one evaluation.
        boundary: (rows sent, rows received) in one pass.
        prunable, worthwhile, pruned: see graph/transforms/pruning.py, and the number of pruned last layers. Steps on
            shares of the clusters choose their rows by prunable and the number of layers alone.
    """

    account: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict)
    loaded: int = 0
    uses: dict[Place, Counter[Use]] = field(default_factory=dict)
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)
    summed: dict[str, tuple[int, int]] = field(default_factory=dict)
    work: dict[Operation, np.ndarray] = field(default_factory=dict)
    seconds: dict[Operation, float] = field(default_factory=dict)
    pages: dict[Operation, int] = field(default_factory=dict)
    evaluation: "Trial | None" = None
    halo: dict[Place, int] = field(default_factory=dict)
    boundary: tuple[int, int] = (0, 0)
    prunable: int = 0
    worthwhile: list[float] = field(default_factory=list)
    pruned: int = 0
    parameters: int = 0
    epochs: int = 0


@dataclass(frozen=True)
class Experiment:
    """The subject of a trial: the plan of a run. Tiles and memory depend on the configured threads (one by default).

    Attributes:
        toy: result of a step on a small graph.
        compared_with: see LocalGraph.
        code: bytes of libraries that this process loaded for the model.
    """

    plan: RunPlan
    toy: Toy
    compared_with: str = ""
    code: int = 0

    @property
    def spec(self) -> ModelSpec:
        """The ModelSpec."""
        return self.plan.spec

    @property
    def config(self) -> Config:
        """The configuration, resolved."""
        return self.plan.config

    @property
    def row_bytes(self) -> int:
        """Of the widest row that is exchanged."""
        return self.toy.row_bytes

    @classmethod
    def of(cls, plan: RunPlan, compared_with: str = "") -> "Experiment":
        """Return the Experiment of a plan, with the width of rows on a small graph. Raises ConfigError for uncounted
        messages.

        Timed rounds have one step here, and the copy is never a lost rank. Nothing is learned, for training could end
        in numbers that are not finite.
        """
        spec = plan.spec
        check_counted(plan)
        plan = plan.changed(lr=LR, layer_lr="", halo="rows")
        if cast(TmaConfig, plan.config.schedule).average_seconds:
            plan = plan.changed(average_steps=1, average_seconds=0.0)
        trim_heap()
        before, toy = resident_bytes(), toy_of(plan)
        trim_heap()
        code = CODE.setdefault(spec.model, max(0, resident_bytes() - before))
        return cls(plan, toy, compared_with, code)

    @property
    def limit(self) -> int:
        """Bytes of the halo buffers."""
        return int(self.config.schedule.halo_buffer * 2**20)

    @property
    def _sums_apart(self) -> bool:
        """Return the answer of the job's communicator to `prepare_sums`."""
        run = self.config.run
        return run.comm in ("mpi", "torch")

    def trainer(
        self,
        size: Size,
        degrees: np.ndarray,
        factor: float = 1.0,
        profiled: bool = False,
        pruned: int | None = None,
    ) -> "Prepared":
        """Make a Trainer on a copy of a rank.

        Args:
            size: the rank's numbers.
            degrees: degrees of a sample of nodes.
            factor: size of the copy as a part of the rank.
            profiled: whether to profile its memory.
            pruned: number of pruned last layers, if the schedule prunes; None leaves it to the copy.
        """
        small = size.scaled(factor)
        most = max(small.inward.most, small.outward.most if small.outward else 0)
        least = 3 * self.row_bytes * max(3, -(-most // ROUNDS))
        buffers = HaloBuffers(max(round(self.limit * factor), least))
        buffers.declare(max(1, self.row_bytes))
        cap = max(1, buffers.cap(buffers.widest_row))
        comm = GhostCommunicator(size.ranks, self._sums_apart)
        loops, edges, task = self.config.data.self_loops, self.plan.reads_edges, self.config.task.task
        how = degrees, self.spec, task, cap, loops, edges, comm, self.compared_with
        local = make_copy(small, *how)
        seen = None if small.seen is None else make_copy(small.seen, *how)
        profile = MemoryProfile(PeakMemory(), buffers.arena, LiveTensors()) if profiled else None
        loaded = held_bytes((local.inward, local.outward, local.features, local.labels, local.split), set())
        arguments = local, self.plan, comm, buffers, make_plugins, profile or unwatched
        making = LiveTensors()
        with making if profiled else contextlib.nullcontext():
            trainer = Trainer(*arguments, part=_PartOfCopy(small, seen, pruned))
        return Prepared(trainer, local, profile, loaded + local.original_id.nbytes, making.height)

    @property
    def tile(self) -> int:
        """Rows that a rank of the job works on at a time (see ops/row_tiles.py)."""
        return tile_rows(self.config.run.threads or 1)

    def try_out(
        self,
        size: Size,
        degrees: np.ndarray,
        factor: float = 1.0,
        pruned: int | None = None,
        tile: int | None = None,
    ) -> Trial:
        """Return the Trial of a copy of a rank. Arguments as in `trainer`; tile: rows per tile (None: the job's)."""
        with tiles_of(tile or self.tile):
            return self._try_out(size, degrees, factor, pruned)

    def _try_out(self, size: Size, degrees: np.ndarray, factor: float, pruned: int | None) -> Trial:
        prepared = self.trainer(size, degrees, factor, True, pruned)
        trainer, local, profile = prepared.trainer, prepared.local, prepared.profile
        assert profile is not None
        whole, work = sum(stage.epochs for stage in trainer.stages), dict[Operation, np.ndarray]()
        account: dict[tuple[int, str], dict[str, int]] = {}
        evaluates = self.config.run.eval_every > 0
        for number, stage in enumerate(trainer.stages):
            trainer.begin_stage(number, 0)
            trainer.step(0)
            if evaluates and trainer.views.subgraph is not None:
                trainer.evaluate()  # the first evaluation computes the cached parts of the whole graph
            with looking(trainer, local, self._fresh(trainer, factor)) as found:
                trainer.step(1)
            for operation, amounts in found.work.items():
                work[operation] = work.get(operation, 0) + amounts * (stage.epochs / whole)
            held = make_account(trainer, local, profile)
            with looking(trainer, local, self._fresh(trainer, factor)) as evaluation:
                trainer.evaluate()
            if evaluates:
                held = make_account(trainer, local, profile)
            account |= {(number, phase): items for phase, items in held.items()}
            profile.taken.clear()
        nothing = dict.fromkeys(next(iter(account.values())), 0)
        account[0, MAKING] = nothing | {"graph structure and plan": prepared.loaded, MADE: prepared.made}
        with looking(trainer, local) as closing:
            costs_of_epoch(trainer)
        for kind, (messages, sent) in closing.sent.items():
            before = found.sent.get(kind, (0, 0))
            found.sent[kind] = before[0] + messages, before[1] + sent
        found.account, found.evaluation = account, evaluation
        found.work, found.boundary = work, (local.inward.plan.num_boundary, local.inward.plan.num_halo)
        found.loaded, found.epochs = prepared.loaded, whole
        found.parameters = sum(p.numel() for p in trainer.model.parameters())
        found.halo = {place: plan.num_halo for place, plan in plans(trainer, local)}
        if self.plan.on_shares:
            found.worthwhile, found.prunable = [1.0] * len(trainer.model.convs), trainer.model.prunable_layers
        elif self.plan.prunes and trainer.views.subgraph is None:
            found.worthwhile, found.prunable = layers_to_prune(trainer.model)
            found.pruned = sum(share is not None for share in trainer.views.shares)
        return found

    def _fresh(self, trainer: Trainer, factor: float) -> Fresh:
        return Fresh(len(trainer.training_graph.ids), factor, tile_rows(), self.tile)


class _PartOfCopy(TrainingPart):
    """The part of a copy that training sees.

    Attributes:
        size: Size of the copy.
        seen: the subgraph of `--inductive`.
        pruned: see `Experiment.trainer`.
    """

    def __init__(self, size: Size, seen: LocalGraph | None, pruned: int | None) -> None:
        self._size, self._seen, self._number = size, seen, pruned

    def subgraph(self, local: LocalGraph, comm: Communicator) -> LocalGraph:
        assert self._seen is not None, "a size has one where the configuration does"
        return self._seen

    def shares(self, local: LocalGraph, model: Any, comm: Communicator) -> list[LocalGraph | None]:
        if self._number is not None:
            for back, conv in enumerate(reversed(model.convs)):
                share = 1.0 if back < self._number else -1.0
                conv.traits = replace(traits_of(conv), worthwhile=share)
        return super().shares(local, model, comm)

    def read_in_place(self, views: Views, plan: RunPlan, comm: Communicator, buffers: HaloBuffers) -> None:
        """Use the node's memory, with the rows of this rank alone."""
        rows = NodeRows(GhostMemory())
        views.share_rows(rows, buffers, lambda graph: on_ghost_node(graph, self._size, rows, plan.returns))


@dataclass(frozen=True)
class Prepared:
    """A Trainer and its graph, with the profile of its memory, the graph's bytes, and the peak while it was made."""

    trainer: Trainer
    local: LocalGraph
    profile: MemoryProfile | None
    loaded: int
    made: int


@contextlib.contextmanager
def looking(trainer: Trainer, local: LocalGraph, fresh: Fresh | None = None) -> Iterator[Trial]:
    """Yield a Trial of the body: uses, sent, work, seconds and pages. fresh: None for a rank of full size."""
    fresh = fresh or Fresh(local.num_owned)
    found, before, comm = Trial(), _uses(trainer), cast(GhostCommunicator, trainer.comm)
    comm.ledger.take()
    comm.summed.take()

    def add(operation: Operation, amounts: tuple[float, ...], cost: "Cost") -> None:
        found.work[operation] = found.work.get(operation, 0) + np.array([1.0, *amounts])
        found.seconds[operation] = found.seconds.get(operation, 0.0) + cost.seconds
        found.pages[operation] = found.pages.get(operation, 0) + cost.pages

    with kernels.watched(_Recorder(add, local.features)), _TorchOperations(add, fresh):
        yield found
    found.work[PAGES] = np.array([0.0, fresh.pages, 0.0])
    found.sent, found.summed = (
        {kind: (each.messages, each.bytes_sent) for kind, each in ledger.take().items()}
        for ledger in (comm.ledger, comm.summed)
    )
    for stream, uses in _uses(trainer).items():
        place = place_of(stream, trainer, local)
        used = uses - before.get(stream, Counter())
        if place is not None and used:
            found.uses[place] = found.uses.get(place, Counter()) + used


def _uses(trainer: Trainer) -> dict[Any, Counter[Use]]:
    return {each: each.uses.copy() for each in trainer.buffers.streams if hasattr(each, "uses")}


def pages_of_process() -> int:
    """Pages of memory that the system has handed out to this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class Cost:
    """Processor seconds of this thread, and pages of the process, from the making to `end`."""

    def __init__(self) -> None:
        self.pages, self.seconds = pages_of_process(), time.thread_time()

    def end(self) -> "Cost":
        self.seconds = time.thread_time() - self.seconds
        self.pages = pages_of_process() - self.pages
        return self


class _Recorder:
    """The watch of kernels. features: see `of_kernel`."""

    def __init__(self, add: Add, features: object) -> None:
        self._add, self._features = add, features

    @contextlib.contextmanager
    def __call__(self, name: str, arguments: tuple[Any, ...]) -> Iterator[None]:
        told = of_kernel(name, arguments, self._features)
        with torch.utils._python_dispatch._disable_current_modes():
            cost = Cost()
            yield
            self._add(*told, cost.end())


class _TorchOperations(Onlooker):
    """Observes torch operations that read or write numbers. fresh: observes them too."""

    def __init__(self, add: Add, fresh: Fresh) -> None:
        super().__init__()
        self._add, self._fresh = add, fresh

    def __torch_dispatch__(
        self,
        operation: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        cost = Cost()
        result = operation(*args, **(kwargs or {}))
        cost.end()
        self._fresh.look((args, kwargs), result)
        told = of_torch(operation, args, result)
        if told is not None:
            self._add(*told, cost)
        return result
