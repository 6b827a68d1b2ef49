"""Additions of extras to an estimate."""

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
