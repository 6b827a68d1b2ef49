"""The tasks by name, and the options that fit them."""

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.registry import Registry
from hpcgnn.tasks.base import Task
from hpcgnn.tasks.classification import Classification, MultiLabel
from hpcgnn.tasks.regression import Regression
from hpcgnn.traits import TaskTraits

TASKS: Registry[Task] = Registry("task")
for _task in (Classification(), MultiLabel(), Regression()):
    TASKS.register(_task.name, _task)


def task_traits(name: str) -> TaskTraits:
    """Return the traits of a task; `auto` has the traits shared by all label tasks."""
    return TASKS[name].traits if name in TASKS else TaskTraits()


def resolve_task(config: Config, meta: GraphMeta) -> Config:
    """Return the configuration with the task of a graph's labels, and its metric and loss, in place of `auto`.

    A task without labels stays.

    Raises:
        ConfigError: an option does not fit the task. The caller raises it on all ranks.
    """
    task = TASKS[meta.task if config.task.task == "auto" else config.task.task]
    if task.traits.labels and not task.learns(meta.task):
        task = TASKS[meta.task]
        raise ConfigError.on_all(
            f"--task {config.task.task}: the labels of {config.data.graph} are for {task.name} ({task.said}); leave "
            f"--task out, or import the graph with --set labels.task={config.task.task}"
        )
    return task.resolve(config, meta)
