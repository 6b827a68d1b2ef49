"""The one training step. It knows neither the schedule nor the model nor MPI."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import torch

from hpcgnn.comm import Communicator
from hpcgnn.config import Config
from hpcgnn.cores.domains import over_own_domains
from hpcgnn.errors import TrainingError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.node_rows import NodeRows
from hpcgnn.graph.inductive import training_subgraph
from hpcgnn.graph.least import least_rows
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.pruning import WORTHWHILE, prune, training_nodes
from hpcgnn.graph.within_node import within_node
from hpcgnn.graphfile.labels import REGRESSION
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import initialise
from hpcgnn.nn.model import traits_of
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.draws import Randomness
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.schedules.base import HaloPolicy, PrunableHalo, Step
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.schedules.schedule_registry import SCHEDULES
from hpcgnn.tasks.base import TARGETS, Scale
from hpcgnn.tasks.registry import task_traits
from hpcgnn.tasks.regression import scale_of
from hpcgnn.train.averages import Averages
from hpcgnn.train.clock import Clock, Watch, unwatched
from hpcgnn.train.diagnosis import first_not_finite
from hpcgnn.train.evaluate import Evaluator
from hpcgnn.train.gradients import FlatGradients
from hpcgnn.train.learned_features import LearnedFeatures
from hpcgnn.train.links import LinkEvaluator, LinkObjective, add_scorer
from hpcgnn.train.objective import Objective
from hpcgnn.train.optim import Optimizer, Stack, build_optimizer, learning_rate, set_learning_rate
from hpcgnn.train.reused_labels import ReusedLabels
from hpcgnn.train.summing import GradientSum, by_layer
from hpcgnn.train.tally import Tally

if TYPE_CHECKING:
    from hpcgnn.train.within_memory import Within


class Trainer:
    """Model, optimizer and schedule over one rank's share of a graph. Made and used collectively.

    local: LocalGraph; plan: RunPlan; buffers: HaloBuffers; watch: told of the phases (see clock.py).
    learns: whether it trains at all; without, it makes no objective, and the graph needs no labels.
    After that, `local` is the graph as it is trained on, which may send sums of rows where the given one sends rows.
    """

    @over_own_domains()
    def __init__(
        self,
        local: LocalGraph,
        plan: RunPlan,
        comm: Communicator,
        buffers: HaloBuffers,
        watch: Watch = unwatched,
        learns: bool = True,
    ) -> None:
        self.plan, config, spec = plan, plan.config, plan.spec
        self.within: Within | None = None  # what lets it take less memory
        self.node_rows: NodeRows | None = None  # where ranks of the node read each other's rows
        self.comm, self.clock, self.buffers = comm, Clock(watch, comm.heartbeat, Tally(comm.ledger)), buffers
        self.random = Randomness(config.run.seed)
        self.constants: dict[str, torch.Tensor] = {}
        with torch.random.fork_rng(devices=[]):
            # For layers that start as torch has it: the same on all ranks.
            torch.default_generator.manual_seed(config.run.seed)
            self.model = MODELS[spec.model].build(spec)
            self.subgraph = self._training_subgraph(local) if learns and config.data.inductive else None
            self.shares = self._pruned(local, spec) if learns and plan.prunes and self.subgraph is None else []
            if comm.size > 1 and plan.in_place:
                local = self._read_in_place(local, spec)
            if comm.size > 1 and plan.halo != "rows":
                local = self._send_sums(local, plan.halo == "least", plan.sends_features)
            self.local, seen = local, local if self.subgraph is None else self.subgraph
            self.schedule = SCHEDULES[config.schedule.schedule].build(seen, comm, buffers, config, self.random)
            self.schedule.sync.extend(self.model)
            if not plan.task.labels:
                add_scorer(self.model, spec, config)
        initialise(self.model, self.random)
        self.learned: LearnedFeatures | None = None
        if spec.learned:
            self.learned = LearnedFeatures(local.original_id, spec.learned, config.run.seed, spec.dtype, config.optim)
        self.reused = ReusedLabels(local, config.task.label_reuse, spec.dtype) if config.task.label_reuse else None
        changing = [each.rows for each in (self.learned, self.reused) if each is not None]
        exact: HaloPolicy = self.schedule.halo if self.subgraph is None else FullHalo(local, comm, buffers)
        self.graph = Graph(local, exact, comm.total, self.random, self._constant, buffers.arena, changing)
        self.training_graph = self.graph.pruned(self._policies()) if self.shares else self.graph
        if self.subgraph is not None:
            verbs = self.schedule.halo, comm.total, self.random, self._constant_of_subgraph, buffers.arena
            self.training_graph = Graph(self.subgraph, *verbs)
        self.alone: LocalGraph | None = None
        if learns and plan.prunes and not changing and self.model.is_local:
            self.alone = training_nodes(local, comm)
        if self.alone is not None:
            self.training_graph = Graph(self.alone, exact, comm.total, self.random, self._constant, buffers.arena)
        self.averages = Averages(self.model, config.optim.ema) if learns and config.optim.ema else None
        self.stages = self.schedule.sync.plan(config.optim)
        self._sum = GradientSum(torch.empty(0), [], comm, 0)  # no stage has begun
        self._least_sum = int(config.schedule.reduce_bucket * 2**20)
        self.begin_stage(0, 0)
        self._judge(config, learns)
        if not learns:
            return
        # The gradients of a mean over very many nodes are smaller than what fp16 can hold; those of the sum are not.
        narrow = config.schedule.halo_dtype == "fp16"
        self._enlarged = 2.0 ** round(math.log2(self.objective.num_train)) if narrow else 1.0

    def _judge(self, config: Config, learns: bool) -> None:
        """Make the evaluator, and if anything is learned the objective. Collective."""
        local, comm = self.local, self.comm
        self.evaluator: Evaluator | LinkEvaluator
        self.objective: Objective | LinkObjective
        if not task_traits(local.task).labels:
            self.evaluator = LinkEvaluator(self.model, local, comm, self.buffers, config)
            if learns:
                self.objective = LinkObjective(self.model, self.graph, comm, self.random, config)
            return
        scale = self._scale(local, config, learns)
        self.evaluator = Evaluator(local, config.run.metric, comm, scale)
        if learns:
            seen = local if self.subgraph is None else self.subgraph
            self.objective = Objective(seen, comm, self.buffers.arena, config.task, scale)

    def _scale(self, local: LocalGraph, config: Config, learns: bool) -> Scale | None:
        """The Scale of real-valued targets, made a part of the model; None where there is none. Where nothing is
        learned a checkpoint brings its numbers. Collective.
        """
        if local.task != REGRESSION or config.task.target_scale == "none":
            return None
        scale = scale_of(local.labels[local.mask("train")], self.comm) if learns else Scale.blank(local.num_classes)
        self.model.add_module(TARGETS, scale)
        return scale

    def _training_subgraph(self, local: LocalGraph) -> LocalGraph:
        """What `--inductive` trains on. Collective."""
        return training_subgraph(local, self.comm)

    def _pruned(self, local: LocalGraph, spec: ModelSpec) -> list[LocalGraph | None]:
        """For every layer what it computes in training: what the loss can see; None: all. Collective."""
        return prune(local, *layers_to_prune(self.model), spec.keeps_input, self.comm)

    def _read_in_place(self, local: LocalGraph, spec: ModelSpec) -> LocalGraph:
        """The graph, and its shares, of which rows of ranks of the same node are read in place. Collective."""
        memory = self.comm.node_memory()
        if memory is None:
            return local
        rows = self.node_rows = NodeRows(memory)
        returns = not MODELS[spec.model].traits(spec).fixed_sums
        whole = self._in_all_shares(local, lambda graph, layer: within_node(graph, rows, self.comm, returns))
        if not any(self.shares):  # all matrices have all own rows, on all ranks alike
            self.buffers.arena.shared = rows.of_all(rows.spread(local.num_owned))
        return whole

    def _send_sums(self, local: LocalGraph, always: bool, features_travel: bool) -> LocalGraph:
        """The graph, and its shares, that send sums where these are fewer than rows. features_travel: whether the
        features are aggregated themselves, in the first layer. Collective.
        """
        return self._in_all_shares(
            local, lambda graph, layer: least_rows(graph, self.comm, always, features_travel and layer == 0)
        )

    def _in_all_shares(self, local: LocalGraph, make: Callable[[LocalGraph, int], LocalGraph]) -> LocalGraph:
        """make(graph, layer) of the graph, which it returns, of what training sees of it, and of the shares of layers.
        Collective.
        """
        whole = make(local, 0)
        if self.subgraph is not None:
            self.subgraph = make(self.subgraph, 0)
        for layer, share in enumerate(self.shares):
            if share is not None and share.inward is local.inward:
                self.shares[layer] = replace(whole, outputs=share.outputs)
            elif share is not None:
                self.shares[layer] = make(share, layer)
        return whole

    def _policies(self) -> dict[int, tuple[LocalGraph, HaloPolicy]]:
        """{layer: (its share, what is done about remote rows there)} of the layers that have a share of their own."""
        halo = cast(PrunableHalo, self.schedule.halo)  # of a schedule that prunes
        return {
            layer: (share, halo if share.inward is self.local.inward else halo.restricted(share))
            for layer, share in enumerate(self.shares)
            if share is not None
        }

    def rows_computed(self, local: LocalGraph) -> list[int]:
        """For every layer the own rows that it computes in training; [] where all layers compute all."""
        if self.alone is not None:
            return [self.alone.num_owned] * len(self.model.convs)
        if not any(self.shares):
            return []
        # A share has outputs.
        return [
            local.num_owned if share is None else len(share.outputs)  # type: ignore[arg-type]
            for share in self.shares
        ]

    def begin_stage(self, index: int, epoch: int) -> None:
        """Train stage number `index` of the schedule from `epoch` on, with fresh optimizers."""
        self.model.zero_grad(set_to_none=True)
        self.stage, self.stage_begun = (
            self.schedule.sync.stage(index, self.stages[index], self.model, self.graph),
            epoch,
        )
        self._sum.close()
        layers = by_layer(self.stage.module)
        self.gradients = FlatGradients(chain.from_iterable(layers))
        self._sum = GradientSum(self.gradients.flat, layers, self.comm, self._least_sum)
        stack = cast(Stack, self.stage.module)  # what a schedule trains has `convs`
        self.optimizers = [build_optimizer(stack, self.stage.options) for _ in range(self.stage.optimizers)]

    @property
    def optimizer(self) -> Optimizer:
        """The first optimizer of the present stage."""
        return self.optimizers[0]

    def learning_rate(self, epoch: int) -> float:
        """That of an epoch of the present stage."""
        return learning_rate(epoch - self.stage_begun, self.stage.options)

    def step(self, epoch: int) -> float:
        """One epoch of the present stage, of as many steps as the schedule makes it; returns the mean loss over all
        training nodes in its last step. Collective.
        """
        self.random.epoch = epoch
        self.schedule.halo.begin_epoch(epoch)
        learned = [] if self.learned is None else [self.learned]
        for optimizer in (*self.optimizers, *(each.optimizer for each in learned)):
            set_learning_rate(optimizer, self.learning_rate(epoch))
        loss, finite = torch.zeros(()), True
        for each in self._steps(epoch):
            self.random.epoch = epoch | each.number << 32
            if self.reused is not None:
                cast(Objective, self.objective).leave_out(self.reused.draw(self.random))  # labels have this one
            self.gradients.zero()
            for rows in learned:
                rows.gradient.zero_()
            with self.clock("forward"), contextlib.nullcontext() if self.within is None else self.within.forward():
                loss = self.objective.local_loss(self.stage.module(each.graph))
            with self.clock("backward"):
                with self._sum.during(each.begin, self._enlarged):
                    (loss * self._enlarged).backward()  # a power of two: nothing is rounded
                for rows in learned:
                    rows.gradient.div_(self._enlarged)
            with self.clock("reduction"):
                self._sum.finish(each.reduce)
            with self.clock("step"):
                square = self._square_of_learned()
                finite = finite and self.gradients.finite() and math.isfinite(square)
                if finite:  # else the parameters stay, so that what failed can be seen once more
                    factor = self.gradients.clip(self.stage.options.clip_norm, square)
                    self.optimizers[each.optimizer].step()
                    for rows in learned:
                        rows.gradient.mul_(factor)
                        rows.optimizer.step()
                    if self.averages is not None:
                        self.averages.follow()
            loss = loss.detach() * each.factor
        return self._total_loss(loss, finite, epoch)

    def _square_of_learned(self) -> float:
        """The squared norm of the gradient of learned features, of all ranks' rows; 0 without any. Collective."""
        if self.learned is None:
            return 0.0
        return float(self.comm.total(self.learned.square()))

    def _steps(self, epoch: int) -> Iterator[Step]:
        """The schedule's steps of an epoch; what it does between them counts as reduction."""
        steps = self.schedule.sync.steps(epoch, self.stage, self.training_graph, self.optimizers)
        while True:
            with self.clock("reduction"):
                step = next(steps, None)
            if step is None:
                return
            yield step

    def evaluate(self) -> dict[str, Any]:
        """{'train', 'val', 'test'}: the metric of each split, of averaged weights where there are; of links, `links`
        besides. Collective.
        """
        if self.reused is not None:
            self.reused.give_all()
        with self.clock("evaluation"), self._to_be_judged():
            return self.evaluator(self.stage.module, self.graph)

    def judged_state(self) -> dict[str, torch.Tensor]:
        """A copy of the state of the model as it is evaluated."""
        with self._to_be_judged():
            return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def _to_be_judged(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.averages is None else self.averages.in_place()

    def _constant(self, name: str, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """A value of this run that never changes: computed at first use (traffic booked as `input`), then kept."""
        if name not in self.constants:
            with torch.no_grad(), self.comm.ledger.booked_as("input"):
                self.constants[name] = compute()
            if self.node_rows is not None:
                self.node_rows.trim()  # what the features were read from
        return self.constants[name]

    def _constant_of_subgraph(self, name: str, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        return self._constant(f"{name} of the subgraph", compute)

    def _total_loss(self, local_loss: torch.Tensor, finite: bool, epoch: int) -> float:
        """The sum of the ranks' shares in float64. Raises TrainingError on all ranks if it or a gradient is not finite,
        or if a row was not on its way.
        """
        bad = torch.tensor(
            [not torch.isfinite(local_loss), not finite, self.schedule.halo.overflowed], dtype=torch.float64
        )
        totals = self.comm.total(torch.cat([local_loss.double().view(1), bad]))
        if totals[1:].any():
            raise self._failure(bad, epoch)
        return float(totals[0])

    def _failure(self, bad: torch.Tensor, epoch: int) -> TrainingError:
        """What went wrong on which ranks. bad: (3,) of this rank, as of `_total_loss`. Collective."""
        losses, gradients, overflows = torch.tensor(self.comm.allgather_object(bad.tolist())).T
        if overflows.any():
            return TrainingError.on_all(
                f"a number left the range of --halo-dtype fp16 (65504) on its way from rank {_ranks(overflows)} in "
                f"epoch {epoch + 1}; use --halo-dtype bf16, which has the range of fp32. The last checkpoint is kept"
            )
        what, flags = ("loss", losses) if losses.any() else ("gradient", gradients)
        seen = self.graph if self.subgraph is None else self.training_graph
        where = first_not_finite(self.model, seen, self.comm, what)
        return TrainingError.on_all(
            f"the {what} is not finite in epoch {epoch + 1} on rank {_ranks(flags)}: {where}; expected a finite "
            f"{what}. Lower --lr, set --clip-norm, or look for extreme features; the last checkpoint is kept"
        )


def layers_to_prune(model: Any) -> tuple[list[float], int]:
    """(worthwhile, prunable) of a model, as `prune` has them."""
    prunable = model.prunable_layers
    return [traits_of(conv).worthwhile or WORTHWHILE for conv in model.convs] if prunable else [], prunable


def _ranks(flags: torch.Tensor) -> str:
    return ", ".join(str(rank) for rank in torch.nonzero(flags).flatten().tolist())
