"""`--like RUN`: seconds of an epoch, from the seconds of a run and the exact counts of both jobs.

An epoch of the run has four parts: the work W of its busiest rank, the wait M of that rank for rows, the reduction R,
and the optimizer's step S. The rank with most work waits least, so M and R are the least of all ranks. W is the rest of
the epoch. Each part is scaled by ratios of counts of the busiest rank, the estimated job's over the run's:

    work       W w                           w: numbers gathered along edges, or multiplications
    messages   M b, or max(0, (M + W) b - W w)         b: bytes sent, or received, of the rank with most
    reduction  R p, or R p l                 p: bytes of parameters, l: log2 of the number of ranks
    step       S s                           s: parameters

A stream hides behind its own gathers, and a run does not show the seconds of hidden messages. The first form takes
nothing as hidden, the second one as much as there was work. The least and the most of each part make a range. For the
run's own job all ratios are 1, and the range is its seconds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError, RunDirError
from hpcgnn.extras.estimate.forecast import CountedGraph, Forecast
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.report.read import Unusable, read_records, read_summary

#: Traffic that a rank waits for within an epoch.
ROWS = "input", "halo_forward", "halo_backward"
# Options of a run's machine and map, which its use elsewhere leaves out.
_OF_MACHINE = "threads", "partition", "intra_node"
Parts = dict[str, float]


@dataclass(frozen=True)
class Counts:
    """The exact counts of an epoch on the busiest rank. sent: bytes of rows that it sends, or receives if that is more.
    reduced: bytes of gradients and parameters that are summed.
    """

    gathered: float
    multiplied: float
    sent: int
    reduced: int
    parameters: int
    ranks: int

    @classmethod
    def of(cls, forecast: Forecast) -> "Counts":
        """Return the counts of a job."""
        ranks = forecast.largest, forecast.busiest, forecast.mean
        return cls(
            max(rank.gathered for rank in ranks),
            max(rank.multiplied for rank in ranks),
            max(
                int(sum((getattr(each, way) for each in forecast.halo.values()), np.zeros(1, np.int64)).max())
                for way in ("bytes", "received")
            ),
            sum(forecast.others.get(kind, (0, 0))[1] for kind in ("allreduce", "average")),
            forecast.parameters,
            forecast.shares.ranks,
        )

    def over(self, before: "Counts", name: str) -> float:
        """The ratio of a count to that of a run. Raises ConfigError where the run had none."""
        now, then = getattr(self, name), getattr(before, name)
        if now and not then:
            raise ConfigError(
                f"--like: nothing is {name} in the run; expected one of several ranks, of this schedule, with "
                "--intra-node messages"
            )
        return float(now / then) if then else 1.0


@dataclass(frozen=True)
class Measured:
    """A run: {part: seconds} of its epoch, its counts, and a line about it."""

    parts: Parts
    counts: Counts
    about: str

    def scaled(self, counts: Counts) -> dict[str, Parts]:
        """{'least', 'most'}: seconds of each part of an epoch with these counts."""
        parts, before = self.parts, self.counts
        work = [counts.over(before, name) for name in ("gathered", "multiplied")]
        sent, reduced, step = (counts.over(before, name) for name in ("sent", "reduced", "parameters"))
        steps = math.log2(counts.ranks) / math.log2(before.ranks) if before.ranks > 1 else 1.0

        def both(choose: Any) -> Parts:
            ratio, wait, busy = choose(work), parts["messages"], parts["work"]
            return {
                "work": busy * ratio,
                "messages": choose(wait * sent, max(0.0, wait * sent + busy * (sent - ratio))),
                "reduction": parts["reduction"] * reduced * choose(1.0, steps),
                "step": parts["step"] * step,
            }

        return {"least": both(min), "most": both(max)}


def read_measured(config: Config) -> Measured:
    """Return the Measured of the run of a configuration, on its own graph, map and ranks. Raises HpcgnnError."""
    path = Path(config.run.run_dir)
    try:
        summary, records = read_summary(path), read_records(path)
        parts = _parts([record["seconds"] for record in records], summary["epoch_seconds"]["median"])
    except (Unusable, KeyError, TypeError, ZeroDivisionError) as problem:
        raise RunDirError(f"--like {path}: expected a finished run with the seconds of its ranks: {problem}") from None
    ran = {name: value for section in summary["config"].values() for name, value in section.items()}
    config = config.replace(**{name: ran[name] for name in _OF_MACHINE})
    with GraphFile(config.data.graph) as file:
        if file.meta.uuid != summary["graph_uuid"]:
            raise RunDirError(f"--like {path}: {config.data.graph} is not the graph that the run was trained on")
        per_node = -(-summary["ranks"] // len(summary["hosts"]))
        source = CountedGraph(file, per_node)
        counts = Counts.of(source.forecast(config, summary["ranks"]))
    shown = ", ".join(f"{name} {value:.3g}" for name, value in parts.items())
    return Measured(
        parts,
        counts,
        f"seconds of an epoch without evaluations, scaled from {path}: {config.data.graph}, ranks × threads "
        f"{summary['ranks']} × {ran['threads']}, {sum(parts.values()):.3g} s there ({shown}); not known: another "
        "machine, network or number of threads, and the fixed costs of calls and messages",
    )


def _parts(epochs: list[Mapping[str, Any]], median: float) -> Parts:
    """The parts of the median epoch, in the proportions of all epochs after the first, which allocates memory."""
    epochs = epochs[1:] or epochs
    whole = sum(epoch["epoch"]["max"] for epoch in epochs)
    found = {
        "messages": sum(epoch[f"{kind}_wait"]["min"] for epoch in epochs for kind in ROWS),
        "reduction": sum(epoch["reduction"]["min"] for epoch in epochs),
        "step": sum(epoch["step"]["mean"] for epoch in epochs),
    }
    found = {"work": whole - sum(found.values())} | found
    return {name: value * median / whole for name, value in found.items()}
