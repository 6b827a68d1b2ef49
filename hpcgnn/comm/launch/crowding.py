"""How many threads there are for a core: it decides how ranks wait, and whether a time means anything."""

from collections.abc import Iterable
from typing import NamedTuple

from hpcgnn import cores


class Binding(NamedTuple):
    """The cores of a rank.

    Attributes:
        cores: cores that it may use.
        main: the cores to which OpenMP has bound its main thread; all if it has not.
    """

    cores: frozenset[int]
    main: frozenset[int]

    @classmethod
    def of_this_rank(cls) -> "Binding":
        """To be called by the main thread."""
        usable = cores.usable()
        return cls(usable, cores.bound_to() & usable or usable)

    @classmethod
    def of_lists(cls, usable: Iterable[int], main: Iterable[int]) -> "Binding":
        """main: empty if OpenMP has not bound the main thread."""
        return cls(frozenset(usable), frozenset(main) or frozenset(usable))

    @property
    def by_openmp(self) -> bool:
        """Whether OpenMP has bound the main thread."""
        return self.main != self.cores

    def sharers(self, near: Iterable["Binding"]) -> int:
        """Return how many ranks may use one of this rank's cores.

        Ranks bound to cores of their own share them with no other; all others share their common cores.

        Args:
            near: bindings of all ranks of the node, this one's too.
        """
        return sum(not self.cores.isdisjoint(each.cores) for each in near)

    def crowding(self, threads: int, near: Iterable["Binding"]) -> float:
        """Return the threads per core; above 1 they take time from each other.

        Ranks whose main threads OpenMP has bound to the same cores compute there, even if others are free.

        Args:
            threads: threads of each rank.
            near: bindings of all ranks of the node.
        """
        near = list(near)
        spread = threads * self.sharers(near) / len(self.cores)
        if not self.by_openmp:
            return spread
        together = sum(each.by_openmp and not self.main.isdisjoint(each.main) for each in near)
        return max(spread, together / cores.physical(self.main))
