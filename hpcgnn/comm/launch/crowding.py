"""How many threads there are for a core: it decides how ranks wait, and whether a time means anything."""

from collections.abc import Iterable
from typing import NamedTuple

from hpcgnn import cores


class Binding(NamedTuple):
    """cores: that a rank may use; main: those of them that OpenMP has bound its main thread to, all if it has not."""

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
        """How many ranks may use one of this rank's cores. near: those of all ranks of the node, this one's too.

        Ranks bound to cores of their own share them with nobody; all others share what they may both run on.
        """
        return sum(not self.cores.isdisjoint(each.cores) for each in near)

    def crowding(self, threads: int, near: Iterable["Binding"]) -> float:
        """Threads for a core, of ranks that have so many threads each; above 1 they take time from each other.

        Ranks whose main threads OpenMP has bound to the same cores compute there, even if others are free.
        """
        near = list(near)
        spread = threads * self.sharers(near) / len(self.cores)
        if not self.by_openmp:
            return spread
        together = sum(each.by_openmp and not self.main.isdisjoint(each.main) for each in near)
        return max(spread, together / cores.physical(self.main))
