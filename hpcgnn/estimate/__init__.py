"""The cost of a job before it is queued: memory, messages and seconds for any number of ranks.

    shares      each rank's share, counted from a graph file
    small_copy  a rank of small size, without other ranks
    trial       the real program on such copies: its memory, work and messages
    traffic     bytes and messages between all ranks
    forecast    the result for a rank of full size: memory by part, bytes and messages, work
    like        seconds of an epoch, scaled from a run
    command     `hpcgnn estimate`

The package knows no model, schedule or option. It tries them on two small copies of a rank, and their cost grows in a
straight line with the copy. So a future layer has its estimate, too.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from hpcgnn.config import Config
from hpcgnn.registry import Registry

if TYPE_CHECKING:
    from hpcgnn.estimate.forecast import Forecast
    from hpcgnn.estimate.results import Place


class Addition(Protocol):
    """Values of each number of ranks under a name of their own, and lines below the table."""

    name: str

    def values(self, forecast: "Forecast", place: "Place") -> dict[str, Any]:
        """Of one number of ranks."""

    def lines(self, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
        """For people. rows: of all numbers of ranks, with these values."""


#: make(config) -> Addition, or None.
ADDITIONS: Registry[Callable[[Config], Addition | None]] = Registry("addition to an estimate")
