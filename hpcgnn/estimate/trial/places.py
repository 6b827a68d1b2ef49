"""The parts of a graph that the rows of a stream go along, so that those of a copy are found in the graph again."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer
    from hpcgnn.graph.local import LocalGraph

#: (the layer whose share of the graph rows go along, (the layer, the step) of own steps of a schedule, None for
#: all of the graph, or SEEN for the subgraph that training sees; 'inward' or 'outward').
Place = tuple[int | tuple[int, int] | str | None, str]
SEEN = "seen"


def place_of(stream: Any, trainer: "Trainer", local: "LocalGraph") -> Place | None:
    """Return the part of the graph that a stream goes along, or None for an unknown plan."""
    return next((place for place, plan in plans(trainer, local) if plan is stream.plan), None)


def plans(trainer: "Trainer", local: "LocalGraph") -> Iterator[tuple[Place, Any]]:
    """Yield the plans of all streams, the whole graph's first."""
    for layer, share in [(None, local), *enumerate(trainer.views.shares), (SEEN, trainer.views.subgraph)]:
        if share is not None:
            yield (layer, "inward"), share.inward.plan
            yield (layer, "outward"), share.outward.plan
    for place, inward, outward in trainer.schedule.sync.plans():
        yield (place, "inward"), inward
        yield (place, "outward"), outward
