"""The plugins of a run, by its configuration."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.hooks import Plugin, Plugins
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.plugins import (
    coded_keeping,
    memory_use,
    schedule_state,
)
from hpcgnn.registry import Registry

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

#: make(trainer, learns) -> Plugin, or None. In the order in which hooks are called.
TRAINER_PLUGINS: Registry[Callable[["Trainer", bool], Plugin | None]] = Registry("plugin")
#: make(config, session, buffers) -> Plugin, or None. A training job makes them before it reads the graph; their hooks
#: come last.
JOB_PLUGINS: Registry[Callable[[Config, Session, HaloBuffers], Plugin | None]] = Registry("plugin of a job")

TRAINER_PLUGINS.register("schedule_state", schedule_state.make)
TRAINER_PLUGINS.register("coded_keeping", coded_keeping.make)
JOB_PLUGINS.register("memory_use", memory_use.make)


def make_plugins(trainer: "Trainer", learns: bool) -> Plugins:
    """The plugins of a trainer. learns: whether anything is trained. Collective."""
    return Plugins(plugin for make in TRAINER_PLUGINS.values() if (plugin := make(trainer, learns)) is not None)


def plugins_of_job(config: Config, session: Session, buffers: HaloBuffers) -> Plugins:
    """The plugins of a training job in addition to its trainer's. Raises ConfigError on single ranks."""
    return Plugins(plugin for make in JOB_PLUGINS.values() if (plugin := make(config, session, buffers)) is not None)
