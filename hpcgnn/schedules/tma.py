"""Averaging (RandomTMA, SuperTMA; Zhu et al., arXiv 2305.09887): no halo × parameters averaged now and then.

Each rank trains on the subgraph induced by its own nodes, with their degrees in it. No data of a node leaves the rank.
An epoch in the records is a round: local steps of each rank, then one average of parameters and of the norms' buffers.
A round has a fixed number of steps, or lasts for some seconds from the average before it on. The ranks agree at the end
of a round. So evaluation and checkpoints are as usual: the averaged model, on the whole graph, exactly.

A rank without training nodes takes no steps and has no weight in the average. Each rank keeps its optimizer's state.
With `--correct-every` a round may end with one exact step on the whole graph. Its optimizer is separate and equal on
all ranks (the server correction of LLCG, Ramezani et al., ICLR'22, without a server).
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from hpcgnn.comm.communicator import Communicator, SoloCommunicator
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.transforms.subgraphs import induced
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.model import Model
from hpcgnn.ops.draws import Randomness
from hpcgnn.option_fields import YEAR, option
from hpcgnn.options import OptimConfig, ScheduleConfig
from hpcgnn.schedules.base import AllreduceEveryStep, OptimizerState, Schedule, ScheduleEntry, Stage, Step
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.schedules.sar import full_halo
from hpcgnn.traits import ScheduleTraits

log = logging.getLogger("hpcgnn")
# The number of the exact step of a round: its draws must be the same on all ranks, however many steps each took before.
_CORRECTION = 1 << 30


@dataclass(frozen=True, kw_only=True)
class TmaConfig(ScheduleConfig):
    """The options of `tma`."""

    average_steps: int = option(
        0,
        "tma: average the parameters after this many steps of each rank",
        least=0,
        schedules=("tma",),
        on_resume="same",
    )
    average_seconds: float = option(
        0.0,
        "tma: average the parameters after this time",
        least=0.0,
        schedules=("tma",),
        most=YEAR,
    )
    correct_every: int = option(
        0,
        "tma: one exact step after this many averages; 0: never",
        details="The step is one of sar, on the whole graph.",
        least=0,
        schedules=("tma",),
    )


class Averaging(AllreduceEveryStep):
    """Rounds of local steps, each ended by an average. Made collectively."""

    def __init__(self, local: LocalGraph, comm: Communicator, buffers: HaloBuffers, options: TmaConfig) -> None:
        super().__init__(comm)
        self._local, self._buffers, self._options = local, buffers, options
        self._subgraph: Graph | None = None
        self._own = int(local.mask("train").sum())
        self._trains = self._own > 0
        totals = comm.total(torch.tensor([self._own, self._trains], dtype=torch.float64), "plan").tolist()
        self._num_train, self._weight = totals[0], self._trains / max(totals[1], 1.0)

    def stage(self, index: int, options: OptimConfig, model: Model, graph: Graph) -> Stage:
        """Return the whole model, with an additional optimizer for the exact steps."""
        return Stage(model, options, 2 if self._options.correct_every else 1, {"steps": 0})

    def steps(self, epoch: int, stage: Stage, graph: Graph, optimizers: Sequence[OptimizerState]) -> Iterator[Step]:
        """Local steps, an average, and when it is time an exact step."""
        if self._subgraph is None:
            subgraph = induced(self._local)
            self._subgraph = graph.over(subgraph, FullHalo(subgraph, SoloCommunicator(), self._buffers), _alone)
        taken = 0
        for number in self._round():
            yield Step(self._subgraph, self._as_own_mean, 0, number)
            taken += 1
        self._average(stage.module)
        stage.note["steps"] = int(self._comm.total(torch.tensor([taken])))
        if self._options.correct_every and (epoch + 1) % self._options.correct_every == 0:
            yield Step(graph, self.reduce, 1, _CORRECTION)

    def _as_own_mean(self, gradients: torch.Tensor) -> None:
        """The loss is a share of the mean over all training nodes; a rank by itself takes the mean over its own."""
        gradients.mul_(self._num_train / self._own)

    def _round(self) -> Iterable[int]:
        """The numbers of this rank's steps in a round."""
        if self._options.average_steps:
            return range(self._options.average_steps if self._trains else 0)
        return self._until_the_clock()

    def _until_the_clock(self) -> Iterator[int]:
        """Yield steps for the seconds of a round, at least one. All ranks have begun it after the same average."""
        number, end = 0, time.monotonic() + self._options.average_seconds
        while self._trains and (number == 0 or time.monotonic() < end):
            yield number
            number += 1

    def _average(self, module: torch.nn.Module) -> None:
        """Parameters and buffers of all ranks by their weights, one message for each dtype. Collective."""
        with torch.no_grad():
            tensors = [t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()]
            for dtype in dict.fromkeys(t.dtype for t in tensors):
                alike = [t for t in tensors if t.dtype == dtype]
                flat = torch.cat([t.reshape(-1) for t in alike])
                # An idle rank may hold anything, also what is not finite: it counts for nothing.
                flat = flat.mul_(self._weight) if self._weight else flat.zero_()
                self._comm.allreduce_(flat, "average")
                for tensor, part in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
                    tensor.copy_(part.view_as(tensor))

    def state(self, optimizers: Sequence[OptimizerState]) -> dict[str, torch.Tensor]:
        """The optimizers of the exact steps and of every rank. Collective."""
        saved = {f"correction.{index}": _pack(optimizer) for index, optimizer in enumerate(optimizers[1:])}
        comm, own = self._comm, _pack(optimizers[0])
        lengths = comm.allgather_object(own.numel())
        parts = [own, *map(own.new_empty, lengths[1:])] if comm.rank == 0 else []
        incoming = [(rank, part) for rank, part in enumerate(parts) if rank and len(part)]
        comm.exchange([(0, own)] if comm.rank and len(own) else [], incoming, "control").finish()
        return saved | {f"own.{rank}": part for rank, part in enumerate(parts)}

    def restore(self, state: Mapping[str, torch.Tensor], optimizers: Sequence[OptimizerState]) -> None:
        """Each rank its own, or, on another number of ranks, all the mean."""
        for index, optimizer in enumerate(optimizers[1:]):
            if f"correction.{index}" in state:
                _unpack(optimizer, state[f"correction.{index}"])
        kept = [state[f"own.{rank}"] for rank in range(len(state)) if f"own.{rank}" in state]
        if not kept:
            return
        if len(kept) == self._comm.size:
            _unpack(optimizers[0], kept[self._comm.rank])
            return
        if self._comm.rank == 0:
            log.warning(
                "the checkpoint has the optimizers of %d ranks and this run has %d: all go on from their mean",
                len(kept),
                self._comm.size,
            )
        kept = [each for each in kept if len(each)]
        _unpack(optimizers[0], torch.stack(kept).mean(0) if kept else torch.zeros(0))


def _alone(tensor: torch.Tensor, kind: str | None = None) -> torch.Tensor:
    return tensor.clone()


def _parameters(optimizer: OptimizerState) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _pack(optimizer: OptimizerState) -> torch.Tensor:
    """All of an optimizer's state in one vector; empty before its first step."""
    parts = [
        optimizer.state[parameter][name].detach().reshape(-1).to(parameter.dtype)
        for parameter in _parameters(optimizer)
        for name in optimizer.state_names
        if parameter in optimizer.state and optimizer.state[parameter].get(name) is not None
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=_parameters(optimizer)[0].dtype)


def _unpack(optimizer: OptimizerState, flat: torch.Tensor) -> None:
    """The reverse of `_pack`."""
    optimizer.state.clear()
    start = 0
    for parameter in _parameters(optimizer) if len(flat) else ():
        optimizer.state[parameter] = {}
        for name in optimizer.state_names:
            like = torch.zeros(()) if name == "step" else parameter.detach()
            stop = start + like.numel()
            optimizer.state[parameter][name] = flat[start:stop].to(like.dtype).view_as(like).clone()
            start = stop


def build_tma(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> Schedule:
    """The schedule for a LocalGraph; its halo policy serves evaluation and exact steps."""
    halo = full_halo(local, comm, buffers, config, random)
    return Schedule(halo, Averaging(local, comm, buffers, cast(TmaConfig, config.schedule)))


def check_tma(config: Config, layers: int) -> None:
    """See ScheduleEntry."""
    options = cast(TmaConfig, config.schedule)
    if bool(options.average_steps) == bool(options.average_seconds):
        raise ConfigError(
            "--schedule tma needs one of --average-steps N (at least 1) and --average-seconds X (above 0), got "
            f"{options.average_steps} and {options.average_seconds:g}"
        )
    if options.correct_every > config.optim.epochs:
        raise ConfigError(
            f"--correct-every {options.correct_every} is longer than the run: expected 0, or 1 to --epochs = "
            f"{config.optim.epochs}"
        )


SCHEDULE = ScheduleEntry(build_tma, ScheduleTraits(partial_sums="always", pairwise=True), check_tma, TmaConfig)
