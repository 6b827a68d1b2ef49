"""The tasks by name, and the options that fit them."""

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.given_links import SHARED
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.options.link_split import AUTO, GIVEN, USUAL
from hpcgnn.options.task import LINKS
from hpcgnn.registry import Registry
from hpcgnn.tasks.base import Metric, Task
from hpcgnn.tasks.classification import Classification
from hpcgnn.tasks.links import Links, SharedNegatives
from hpcgnn.tasks.multilabel import MultiLabel
from hpcgnn.tasks.regression import Regression
from hpcgnn.traits import TaskTraits

TASKS: Registry[Task] = Registry("task")
for _task in (Classification(), MultiLabel(), Regression(), Links()):
    TASKS.register(_task.name, _task)


def task_traits(name: str) -> TaskTraits:
    """Return the traits of a task; `auto` has the traits shared by all label tasks."""
    return TASKS[name].traits if name in TASKS else TaskTraits()


def resolve_task(config: Config, meta: GraphMeta) -> Config:
    """Return the configuration with the task of a graph's labels, and its metric, loss and edge split, in place of
    `auto`.

    A task without labels stays.

    Raises:
        ConfigError: an option does not fit the task. The caller raises it on all ranks.
    """
    task = TASKS[meta.task if config.task.task == "auto" else config.task.task]
    if task.name == LINKS:
        config = config.replace(link_split=_link_split(config, meta))
        task = links_task(meta.negatives if config.task.link_split == GIVEN else "")
    elif not task.learns(meta.task):
        task = TASKS[meta.task]
        raise ConfigError.on_all(
            f"--task {config.task.task}: the labels of {config.data.graph} are for {task.name} ({task.said}); leave "
            f"--task out, or import the graph with --task {config.task.task}"
        )
    metric = fitting_metric(config.run.metric, task, meta.num_classes)
    loss = fitting_loss(config.task.loss, task)
    task.check(config.task)
    return config.replace(task=task.name, metric=metric, loss=loss)


def _link_split(config: Config, meta: GraphMeta) -> str:
    """`--link-split` in place of `auto`. Raises ConfigError where a file is to have held-out edges, and has none."""
    wanted = config.task.link_split
    if wanted == GIVEN and not meta.negatives:
        raise ConfigError.on_all(
            f"--link-split {GIVEN}: expected a graph file with held-out edges, and {config.data.graph} has none; say "
            f"shares such as {USUAL}, or import the graph with its held-out edges"
        )
    if wanted == AUTO:
        return GIVEN if meta.negatives else USUAL
    return wanted


def links_task(negatives: str) -> Task:
    """Return the link prediction task for a kind of negatives.

    Args:
        negatives: the kind that the graph provides (graphfile/given_links.py), or ''.
    """
    return SharedNegatives() if negatives == SHARED else TASKS[LINKS]


def metrics_of(task: Task, outputs: int) -> dict[str, Metric]:
    """The metrics of a task for a number of a model's outputs."""
    return {name: metric for name, metric in task.metrics.items() if metric.outputs in (0, outputs)}


def fitting_metric(name: str, task: Task, outputs: int) -> str:
    """The metric of this name, or for `auto` the task's first. Raises ConfigError, to be raised on all ranks."""
    if name in task.metrics and name not in metrics_of(task, outputs):
        raise ConfigError.on_all(
            f"--metric {name}: expected {task.metrics[name].outputs} {task.outputs}, and the graph has {outputs}; take "
            f"{' or '.join(metrics_of(task, outputs))}"
        )
    return _fitting("--metric", name, tuple(metrics_of(task, outputs)), task)


def fitting_loss(name: str, task: Task) -> str:
    """The loss of this name, likewise."""
    return _fitting("--loss", name, task.losses, task)


def _fitting(flag: str, name: str, known: tuple[str, ...], task: Task) -> str:
    if name != "auto" and name not in known:
        raise ConfigError.on_all(
            f"{flag} {name} does not fit the task {task.name} ({task.said}); expected {' or '.join(known)}"
        )
    return known[0] if name == "auto" else name
