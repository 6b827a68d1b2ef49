"""Every option of a run, declared once: its default, its help, its range.

The command line, the TOML file and the errors are derived from these declarations (see hpcgnn/config.py).
"""

from dataclasses import dataclass

from hpcgnn.option_fields import Having, option
from hpcgnn.options.model import ModelConfig
from hpcgnn.options.optim import OptimConfig
from hpcgnn.options.run import RunConfig
from hpcgnn.options.schedule import ScheduleConfig
from hpcgnn.options.task import TaskConfig

__all__ = [
    "DEALT",
    "SECTIONS",
    "DataConfig",
    "ModelConfig",
    "OptimConfig",
    "RunConfig",
    "ScheduleConfig",
    "TaskConfig",
]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    graph: str = option("", "graph file, made by `python -m partition_tools`", flag=True, required=True)
    partition: str = option(
        "",
        "stored map of clusters to ranks; super-nodes, random-nodes: a random one",
        details="No name: the file's default, or a map that is made at the start. Random ones are for experiments.",
    )
    replicas: int = option(
        1,
        "groups of ranks with the whole graph each, for tasks with snapshots",
        details="Each has P / R ranks and a map for so many. Results are the same for every number.",
        least=1,
        needs={"task": Having("reads_on")},
        strict=True,
    )
    self_loops: str = option(
        "auto",
        "add missing self loops, keep the edges, or follow the model",
        choices=("auto", "add", "keep"),
    )
    inductive: bool = option(
        False,
        "train on the subgraph of training nodes, evaluate on the whole graph",
        details="The subgraph takes memory in addition to the whole graph.",
        on_resume="same",
    )


#: Values of `--partition` that name no stored map.
DEALT = "super-nodes", "random-nodes"

SECTIONS = {
    "data": DataConfig,
    "task": TaskConfig,
    "model": ModelConfig,
    "optim": OptimConfig,
    "schedule": ScheduleConfig,
    "run": RunConfig,
}
