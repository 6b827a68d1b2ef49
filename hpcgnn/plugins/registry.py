"""The plugins of a run, by its configuration."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcgnn.engine.hooks import Plugin, Plugins
from hpcgnn.plugins import averages, label_reuse, learned_features

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

#: make(trainer, learns) -> Plugin, or None. In the order in which hooks are called.
MAKERS: tuple[Callable[["Trainer", bool], Plugin | None], ...] = (
    learned_features.make,
    label_reuse.make,
    averages.make,
)


def make_plugins(trainer: "Trainer", learns: bool) -> Plugins:
    """The plugins of a run. learns: whether anything is trained. Collective."""
    return Plugins(plugin for make in MAKERS if (plugin := make(trainer, learns)) is not None)
