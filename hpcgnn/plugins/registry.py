"""The plugins of a run, by its configuration."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.hooks import Plugin, Plugins
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.plugins import (
    averages,
    coded_keeping,
    label_reuse,
    learned_features,
    memory_use,
    trace,
    watching,
)

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

#: make(trainer, learns) -> Plugin, or None. In the order in which hooks are called.
MAKERS: tuple[Callable[["Trainer", bool], Plugin | None], ...] = (
    learned_features.make,
    label_reuse.make,
    averages.make,
    coded_keeping.make,
)
#: make(config, session, buffers) -> Plugin, or None. A training job makes them before it reads the graph; their hooks
#: come last.
OF_JOB: tuple[Callable[[Config, Session, HaloBuffers], Plugin | None], ...] = (
    memory_use.make,
    trace.make,
    watching.make,
)


def make_plugins(trainer: "Trainer", learns: bool) -> Plugins:
    """The plugins of a trainer. learns: whether anything is trained. Collective."""
    return Plugins(plugin for make in MAKERS if (plugin := make(trainer, learns)) is not None)


def plugins_of_job(config: Config, session: Session, buffers: HaloBuffers) -> Plugins:
    """The plugins of a training job in addition to its trainer's. Raises ConfigError on single ranks."""
    return Plugins(plugin for make in OF_JOB if (plugin := make(config, session, buffers)) is not None)
