"""A trained model over a graph, on any number of ranks: the start of `hpcgnn evaluate` and `hpcgnn predict`.

The checkpoint describes its model completely, and the exact streamed forward pass gives the same numbers on every
layout. So a run of a thousand ranks can be used on one node, if a rank's share fits in its memory. The graph is the
run's own or, for predictions, another one with the same features.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from hpcgnn.app.bring_up import bring_up
from hpcgnn.app.corrections import Correction
from hpcgnn.app.resuming import run_identity
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.checkpoint import Checkpoint, check_identity, restore
from hpcgnn.engine.trainer import Trainer
from hpcgnn.errors import CheckpointError, GraphError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.registry import MODELS
from hpcgnn.ops.handover import Handover
from hpcgnn.options.inputs import inputs_of, inputs_text
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.plugins.registry import make_plugins
from hpcgnn.records import to_json
from hpcgnn.tasks.base import Task
from hpcgnn.tasks.registry import TASKS, task_traits

log = logging.getLogger("hpcgnn")
# Fields of a spec that depend on the graph and not on the model: another graph may differ, unless the model reads them.
_OF_GRAPH = ("graph", "weighted", "edge_types", "node_types", "sparse_input")


@dataclass(frozen=True)
class LoadedModel:
    """A model with its weights, in evaluation mode, over a rank's share of a graph.

    Attributes:
        checkpoint: name of its file.
        weights: 'best' or 'last'.
        epoch: epoch of the weights.
        corrections: corrections of the model's outputs.
    """

    trainer: Trainer
    meta: GraphMeta
    map_name: str
    checkpoint: str
    weights: str
    epoch: int
    epochs_done: int
    corrections: Sequence[Correction] = ()

    @property
    def task(self) -> Task:
        """Return the task of the training."""
        return self.trainer.evaluator.task

    def logits(self) -> tuple[torch.Tensor, float]:
        """((n_p, C) of own nodes, corrected if that is asked for, seconds of the slowest rank).
        Collective. The ledger books it as `evaluation`.
        """
        trainer, started = self.trainer, time.perf_counter()
        with torch.no_grad(), trainer.comm.ledger.booked_as("evaluation"):
            logits = trainer.evaluator.outputs(trainer.model, trainer.graph)
            for correction in self.corrections:
                logits = correction.correct(logits, trainer)
        return logits, max(trainer.comm.allgather_object(time.perf_counter() - started))

    def chosen(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the predictions: int64 (n_p, 1) classes, int32 (n_p, C) of 0 and 1, or float64 (n_p, C)."""
        return self.task.predict(self.trainer.evaluator.in_units(logits))

    def origin(self) -> dict[str, Any]:
        """Where results are from, for the files that hold them."""
        return {
            "graph_uuid": self.meta.uuid,
            "run": str(self.trainer.plan.config.run.run_dir),
            "checkpoint": self.checkpoint,
            "weights": self.weights,
            "epoch": self.epoch,
            **{each.name: to_json(each.record()) for each in self.corrections},
        }


def load_trained(
    config: Config,
    session: Session,
    weights: str = "best",
    other_graph: bool = False,
    corrections: Sequence[Correction] = (),
) -> LoadedModel:
    """Load the model of the newest checkpoint of config.run.run_dir over config.data.graph. Collective.

    Args:
        config: the configuration.
        session: the session with its communicator.
        weights: 'best' (of validation) or 'last'.
        other_graph: whether the graph may differ from the run's; it needs no labels then.
        corrections: corrections of the model's outputs.

    Raises:
        HpcgnnError: on all ranks, if there is no such model, or it does not fit.
    """
    comm, config = session.comm, config.replace(replicas=1)
    with comm.together("looking for a checkpoint"):
        found = str(find_checkpoint(config.run.run_dir).path) if comm.rank == 0 else ""
    path = Path(comm.broadcast_object(found))
    with comm.together("reading the checkpoint"):
        checkpoint = Checkpoint(path)
        state, epoch = checkpoint.weights(weights)
    identity = checkpoint.identity
    has_labels = False

    def adapt(file: GraphFile) -> Config:
        """The configuration for the graph that is open, which is compared with the run's."""
        nonlocal has_labels
        has_labels = file.meta.num_classes > 0  # before the run's classes stand in for them
        is_other = file.meta.uuid != identity["graph"]
        with comm.together("comparing the graph with the run's", on_one=True):
            if not other_graph:  # before its labels are found not to fit the run's options
                check_identity(path, identity, identity | {"graph": file.meta.uuid})
            elif is_other:
                file.meta = _as_trained(file.meta, config, identity, file.path)
        if not is_other:
            return config
        return TASKS[config.task.task].elsewhere(config, file.meta)

    def corrected_bytes(plan: RunPlan) -> int:
        return max((each.row_bytes(plan.spec) for each in corrections), default=0)

    needs_labels = False if other_graph else None
    with bring_up(config, session, False, needs_labels, adapt, corrected_bytes) as ready:
        meta = ready.graph.file.meta
        with comm.together("comparing the run with the checkpoint's"):
            present = run_identity(ready.plan, meta)
            if meta.uuid != identity["graph"]:
                present = {name: value for name, value in present.items() if name not in _OF_GRAPH}
            check_identity(path, identity, present)
        local = ready.load(labelled=has_labels and ready.plan.task.labels)
    trainer = Trainer(local, ready.plan_on(local), comm, ready.buffers, make_plugins, learns=False)
    ready.memory.begin(trainer)
    with comm.together("loading the weights"):
        stage = checkpoint.progress.get("stage", 0)
        if stage < trainer.schedule.sync.first_whole:
            raise CheckpointError(
                f"{path} is of a run that has trained {stage} layers and expects "
                f"{trainer.schedule.sync.first_whole + 1}, so that its model does not predict yet; continue it with "
                "--resume"
            )
        restore(trainer.model, state)
    for plugin in trainer.plugins:
        plugin.load(checkpoint, best_only=weights == "best")
    trainer.model.eval()
    done = checkpoint.epoch
    return LoadedModel(trainer, meta, ready.graph.map_name, path.name, weights, epoch, done, corrections)


def _as_trained(meta: GraphMeta, config: Config, identity: dict[str, Any], path: Path) -> GraphMeta:
    """Return another graph's metadata with the task and the classes of the run. Raises GraphError if the model does not
    fit.
    """
    model, entry, inputs = config.model, MODELS[config.model.model], inputs_of(inputs_text(config.task))
    if inputs.learned:
        raise GraphError(
            f"{config.run.run_dir} has learned features (--features {config.task.features}), which belong to the nodes "
            f"of its own graph, and {path} is another one; leave --graph out"
        )
    labels, relational = task_traits(config.task.task).labels, entry.traits().relational
    reads_types, edge_features = relational or model.plugin != "", int(identity.get("edge_features", 0))
    columns = inputs.columns(meta.num_features, meta.num_edge_features, int(identity["classes"]))
    columns += TASKS[config.task.task].num_columns(config, meta)
    # (what, found, name in the identity, whether the model depends on it)
    wanted = [
        ("features", columns, "d_in", True),
        ("classes", meta.num_classes, "classes", meta.num_classes > 0 and labels),
        ("types of edges", meta.num_edge_types, "edge_types", reads_types),
        ("edge features", meta.num_edge_features, "edge_features", edge_features > 0),
        *((f"{name} of the features", found, name, name in identity) for name, found in entry.facts(meta).items()),
        ("types of nodes", meta.num_node_types, "node_types", reads_types),
        ("sparse features (False: dense)", meta.sparse_features, "sparse_input", relational),
    ]
    for what, found, name, reads in wanted:
        if reads and str(found) != identity[name]:
            raise GraphError(
                f"{path} does not fit the model of {config.run.run_dir}: expected {what} {identity[name]}, got "
                f"{found}; use a graph that was imported as the run's was"
            )
    if not labels:
        return meta
    task = TASKS[config.task.task]
    if meta.num_classes and not task.learns(meta.task):
        raise GraphError(f"{path} does not fit the model of {config.run.run_dir}, which was trained on {task.said}")
    num_edge_features = meta.num_edge_features if inputs.edges else edge_features
    return replace(
        meta, task=task.labels or task.name, num_classes=int(identity["classes"]), num_edge_features=num_edge_features
    )


def find_checkpoint(run_dir: str | Path) -> Checkpoint:
    """The newest checkpoint of a run that reads completely. Raises CheckpointError if there is none."""
    found = Checkpoint.newest(run_dir, log.warning)
    if found is None:
        raise CheckpointError(f"{run_dir} has no checkpoint yet; expected one in {Path(run_dir) / 'checkpoints'}")
    return found


@contextlib.contextmanager
def hidden_state(model: Any, layer: int) -> Iterator[list[torch.Tensor]]:
    """Collect the output of a hidden layer during an evaluation in the body.

    Args:
        model: the model.
        layer: number of the layer, from 1; not the last one.

    Yields:
        a list that receives the owned rows (n_p, d), after norm and activation, in evaluation mode.
    """
    found: list[torch.Tensor] = []

    def look(conv: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        x = arguments[1]
        if not isinstance(x, Handover):
            found.append(x.clone())
        else:  # the next layer may write to the rows that it takes over
            found.append(x.rows.clone() if x.activation is None else x.activation(x.rows.clone()))

    handle = model.convs[layer].register_forward_pre_hook(look)
    try:
        yield found
    finally:
        handle.remove()
