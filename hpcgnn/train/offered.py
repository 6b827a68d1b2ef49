"""The plugins that a Trainer makes by itself, where the configuration has a use for them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcgnn.train import averages, learned_features, reused_labels
from hpcgnn.train.plugins import Plugin, Plugins

if TYPE_CHECKING:
    from hpcgnn.train.loop import Trainer

#: make(trainer, learns) -> Plugin, or None. In the order in which hooks are called.
MAKERS: tuple[Callable[["Trainer", bool], Plugin | None], ...] = (
    learned_features.make,
    reused_labels.make,
    averages.make,
)


def make_plugins(trainer: "Trainer", learns: bool) -> Plugins:
    """The plugins of a run. learns: whether anything is trained. Collective."""
    return Plugins(plugin for make in MAKERS if (plugin := make(trainer, learns)) is not None)
