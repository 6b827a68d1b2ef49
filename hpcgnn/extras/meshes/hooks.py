"""Registers the task `fields`, the model `meshgraphnet`, their options and rules, the command `rollout`, and the
names of Dist-GNN's weights.
"""

from collections.abc import Iterator

from hpcgnn.app.corrections import TABLES, OutputEntry
from hpcgnn.app.weights import LIBRARIES
from hpcgnn.cli.commands import COMMANDS
from hpcgnn.config import declare
from hpcgnn.extras.meshes import meshgraphnet
from hpcgnn.extras.meshes.one_step import add_option, table_of
from hpcgnn.extras.meshes.options import FIELDS, FieldsConfig, options_of
from hpcgnn.extras.meshes.rollout import add_rollout
from hpcgnn.extras.meshes.task import Fields
from hpcgnn.extras.meshes.weights import DistGnn
from hpcgnn.nn.registry import MODELS
from hpcgnn.plan.rules import COUNTING_RULES, PLAN_RULES, RULES, schedules_with
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.tasks.registry import TASKS


def rule(of: RunPlan) -> Iterator[str]:
    """Schedules and subgraphs that the task cannot be learned with."""
    if of.config.task.task != FIELDS:
        return
    if of.config.data.replicas > (size := options_of(of.config).snapshots_per_step):
        yield (
            f"--replicas {of.config.data.replicas}: the snapshots of a step are dealt to the replicas: expected "
            f"--snapshots-per-step {of.config.data.replicas} or a multiple, got {size}"
        )
    if of.config.data.replicas > 1 and of.config.model.norm == "batch":
        yield (
            f"--replicas {of.config.data.replicas}: a batch norm sees the snapshots of all replicas together, so that "
            "results would differ: expected --norm layer or none, got batch"
        )
    if of.config.data.inductive or not (of.schedule.exact_epochs and of.schedule.changing_input):
        allowed = schedules_with(lambda each: each.exact_epochs and each.changing_input)
        yield (
            f"--task {FIELDS} gives all nodes other inputs in every step: expected no --inductive, and --schedule "
            f"{allowed}, got --schedule {of.config.schedule.schedule}"
        )


def counted(of: RunPlan) -> Iterator[str]:
    """Replicas."""
    if (replicas := of.config.data.replicas) > 1:
        yield (
            f"estimate counts the messages of one replica, got --replicas {replicas}; expected --replicas 1, and the "
            "ranks of a replica as --ranks"
        )


declare("task", FIELDS, FieldsConfig)
TASKS.register(FIELDS, Fields())
RULES.append(rule)
COUNTING_RULES.append(counted)
COMMANDS.register("rollout", add_rollout)
TABLES.register(FIELDS, OutputEntry(add_option, table_of))
declare("model", "meshgraphnet", meshgraphnet.MeshGraphNetConfig)
MODELS.register("meshgraphnet", meshgraphnet.MODEL)
RULES.append(meshgraphnet.rule)
PLAN_RULES.append(meshgraphnet.needs_positions)
LIBRARIES.register("dist-gnn", DistGnn())
