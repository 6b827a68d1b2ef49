"""The part of an estimate on a memory limit (`--memory`): the data on disk, by the job's own rules."""

from collections.abc import Iterator, Sequence
from typing import Any

from tabulate import tabulate

from hpcgnn.app.out_of_memory import ADVICE
from hpcgnn.config import Config
from hpcgnn.extras.estimate.forecast import Forecast
from hpcgnn.extras.estimate.results import TargetNode, size_in_words
from hpcgnn.extras.offload.features import (
    Placing,
    bytes_of_constants,
    bytes_on_disk,
    bytes_read_at_a_time,
    can_lie_on_disk,
    place,
    reads_input,
    reads_of_epoch,
)
from hpcgnn.extras.offload.options import options_of, said_memory


class LimitTable:
    """The second table of an estimate, of a configuration with a limit."""

    name = "within"

    def __init__(self, config: Config) -> None:
        self._said = options_of(config).memory
        self._bytes = said_memory(self._said) or 0

    def values(self, forecast: Forecast, place: TargetNode) -> dict[str, Any]:
        return within(forecast, place, self._bytes)

    def lines(self, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
        yield f"\nwithin --memory {self._said} of a node:\n{within_table(rows)}"
        yield "the upper table is without --memory; the lower one takes all ranks for as large as the largest"
        fitting = [row["ranks"] for row in rows if row["within"]["fits"]]
        yield f"fewest ranks that fit: {min(fitting)}" if fitting else f"none fits; {ADVICE}"


def within(forecast: Forecast, place_: TargetNode, memory: int) -> dict[str, Any]:
    """Return the bytes in memory and on disk of a node with a limit, and the disk traffic of a training epoch.

    All ranks count as large as the largest.

    Args:
        forecast: the forecast of the job.
        place_: the node.
        memory: bytes that the ranks of the node may take together.
    """
    experiment, rank = forecast.experiment, forecast.largest
    spec, probe = experiment.plan.spec, experiment.probe
    rows, columns = int(forecast.shares.nodes.max()), spec.d_in - spec.changing
    per_node = min(forecast.shares.ranks, place_.ranks_per_node or forecast.shares.ranks)
    kept, at_work = probe.kept(rows, int(forecast.shares.edges.max())), probe.peak_working_set(rows)
    libraries = place_.libraries + experiment.code
    lasting = libraries + rank.parts["structure"] + probe.beside + 2 * probe.parameters + experiment.limit
    sizes = bytes_on_disk(spec, rows, columns)
    found, room = Placing(False, False, 1.0), memory // per_node - lasting - at_work
    if can_lie_on_disk(experiment.plan):
        read = bytes_read_at_a_time(spec, rows, columns, experiment.tile)
        found = place(room, at_work, kept, read, sizes, reads_input(spec))
    if not found.features:
        room -= rank.parts["features"]
    if not spec.sparse_input:
        room -= bytes_of_constants(spec, rows, columns, found, experiment.tile)
    features, aggregate = sizes[0] * found.features, sizes[1] * found.aggregate
    # Bytes of the copy beyond the job's own prediction are activations as well.
    shown, foretold = libraries + rank.loaded + rank.growth, memory // per_node - room + kept
    kept += max(0, shown - features - aggregate - foretold)
    over = min(kept, max(0, kept - room))
    again = reads_of_epoch(spec) * (features * reads_input(spec) + aggregate)
    written, back = per_node * over, per_node * (over + again)
    return {
        "memory_bytes": memory,
        "fits": room >= 0,
        "node_bytes": memory - per_node * (room - (kept - over)),
        "scratch_bytes": per_node * (over + features + aggregate),
        "scratch_written_per_epoch": written,
        "scratch_read_per_epoch": back,
    }


def within_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format the memory and disk use of a node for people."""
    sizes = {
        "memory of\na node": "node_bytes",
        "scratch of\na node": "scratch_bytes",
        "written per\nepoch": "scratch_written_per_epoch",
        "read per\nepoch": "scratch_read_per_epoch",
    }
    lines = []
    for row in rows:
        held = row["within"]
        said = [size_in_words(held[name]) for name in sizes.values()]
        lines.append([row["ranks"], row["nodes"] or "", *said, "yes" if held["fits"] else "no"])
    headers = ["ranks", "nodes", *sizes, "fits"]
    return tabulate(lines, headers, tablefmt="simple", disable_numparse=True, stralign="right")
