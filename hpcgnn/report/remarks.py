"""Warnings about a study's times: ranks that shared cores, and memory caps of the communication that had no effect.

Eight ranks on two cores are no slower program than two, and a cap above the whole halo is no other exchange than a
larger one. Both look like results in a figure of efficiency, so its notes mention them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcgnn.report.read import Run
    from hpcgnn.report.study import Study


ONE_SHOT_MIB = 2**20  # a cap that no halo reaches: how jobs/lib/study.sh asks for the one-shot exchange
SHARED = "†"


def crowds(run: "Run") -> list[tuple[int, int, int]] | None:
    """Return [(ranks, threads of each, cores)] for every set of ranks of a host with fewer cores than threads.

    Ranks that may run on a common core belong together. None if the records lack the data.
    """
    return crowds_of(run.ranks)


def crowds_of(ranks: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, int]] | None:
    """As `crowds`, of the records of all ranks."""
    sets: list[tuple[set[tuple[str, int]], list[int]]] = []
    for rank in ranks:
        if not rank.get("cores") or not rank.get("threads"):
            return None
        own = {(rank["host"], core) for core in rank["cores"]}
        joined = [one for one in sets if one[0] & own]
        members = [rank["threads"], *(count for one in joined for count in one[1])]
        sets = [one for one in sets if one not in joined]
        sets.append((own.union(*(one[0] for one in joined)), members))
    return [(len(threads), max(threads), len(cores)) for cores, threads in sets if sum(threads) > len(cores)]


def threads_per_core(run: "Run") -> float:
    """The most threads for one core that any set of ranks had; at most 1 where every thread had its own, NaN if
    unknown.
    """
    found = crowds(run)
    return math.nan if found is None else max((ranks * threads / cores for ranks, threads, cores in found), default=1.0)


def halo_rounds(run: "Run") -> float:
    """In how many rounds the halo passed, on the rank with the most; NaN if the records do not tell."""
    rounds: list[Any] = [rank.get("halo_rounds") for rank in run.ranks]
    return math.nan if None in rounds else max(rounds)


def remarks(study: "Study") -> list[str]:
    """Lines to read a study's times and efficiencies by; [] where there is nothing to say."""
    return [*_on_cores(study), *_on_caps(study)]


def _on_cores(study: "Study") -> list[str]:
    """'4 and 8 ranks shared 2 cores: …', one line for each number of cores."""
    found: dict[tuple[str, int], set[int]] = {}
    for run in study.runs:
        for ranks, threads, cores in crowds(run) or ():
            each = "" if threads == 1 else f" of {threads} threads"
            found.setdefault((each, cores), set()).add(ranks)
    what, lines = "efficiency" if study.mode != "none" else "time", []
    for (each, cores), counts in sorted(found.items()):
        who = f"{_listed(sorted(counts))} rank{'s' if counts != {1} else ''}{each}"
        where = f"{cores} core{'s' if cores > 1 else ''}"
        lines.append(f"{SHARED} {who} shared {where}: {what} here measures the sharing, not the program.")
    return lines


def _on_caps(study: "Study") -> list[str]:
    """'At 2 and 4 ranks the cap of 8 MiB never bit: …', one line for each cap."""
    caps: dict[int, set[float]] = {}
    same: dict[tuple[float, ...], list[int]] = {}
    for run in study.runs:
        cap = run.config.get("halo_buffer")
        if run.summary["ranks"] > 1 and cap is not None and cap < ONE_SHOT_MIB and halo_rounds(run) <= 1:
            caps.setdefault(run.summary["ranks"], set()).add(cap)
    for ranks, values in caps.items():
        same.setdefault(tuple(sorted(values)), []).append(ranks)
    return [
        f"At {_listed(sorted(ranks))} ranks the whole halo passed in one round: the cap of {_listed(values, ' MiB')} "
        "never bit, and a larger --halo-buffer would change nothing."
        for values, ranks in sorted(same.items())
    ]


def _listed(values: Sequence[float], unit: str = "") -> str:
    """'2, 4 and 8 MiB' of numbers."""
    words = [f"{value:g}" for value in values]
    return (words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}") + unit
