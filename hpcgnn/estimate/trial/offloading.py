"""A job within a memory limit (`--memory`): its data on disk, by the job's own rules."""

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from hpcgnn.config import Config
from hpcgnn.estimate.forecast import Forecast
from hpcgnn.estimate.results import Place, size_in_words
from hpcgnn.memory.shelf import Shelf
from hpcgnn.offload.activations import AT_WORK, bytes_of_constants
from hpcgnn.offload.columns import LEAST
from hpcgnn.offload.features import (
    Placing,
    bytes_on_disk,
    bytes_read_at_a_time,
    can_lie_on_disk,
    place,
    reads_of_epoch,
)


def within(forecast: Forecast, place_: Place, config: Config, memory: int) -> dict[str, Any]:
    """Return the bytes in memory and on disk of a node with a limit, and the disk traffic of a training epoch.

    All ranks count as large as the largest.

    Args:
        forecast: the forecast of the job.
        place_: the node.
        config: the configuration.
        memory: bytes that the ranks of the node may take together.
    """
    experiment, rank = forecast.experiment, forecast.largest
    spec, toy = experiment.spec, experiment.toy
    rows, columns = int(forecast.shares.nodes.max()), spec.d_in - spec.changing
    per_node = min(forecast.shares.ranks, place_.ranks_per_node or forecast.shares.ranks)
    kept, at_work = toy.per_node * rows, AT_WORK * toy.largest * rows
    libraries = place_.libraries + experiment.code
    lasting = libraries + rank.parts["structure"] + toy.beside + 2 * toy.parameters + experiment.limit
    sizes = bytes_on_disk(spec, rows, columns)

    def placed(at_work: int, kept: int) -> tuple[int, Placing]:
        """(bytes that are left, what is on disk)."""
        shelf = Shelf(None, None, experiment.tile, columns)  # type: ignore[arg-type] # nothing is put there
        found, room = Placing(False, False, 1.0), memory // per_node - lasting - at_work
        if can_lie_on_disk(experiment.plan, toy):
            read = bytes_read_at_a_time(shelf, spec, rows, columns)
            found = place(room, at_work, kept, read, sizes, toy.reads_input)
        if not found.features:
            room -= rank.parts["features"]
        shelf.results = found.aggregate
        where = shelf if found.features else None
        held = spec.held or spec.dtype
        return room - (bytes_of_constants((rows, columns), spec, held, where) if not spec.sparse_input else 0), found

    room, found = placed(at_work, kept)
    layers, written, back, file = toy.disk, 0, 0, 0  # of layers that work from the disk
    if layers is not None and room < 0:
        ranks = forecast.shares.ranks
        least = layers.at_work(rows, LEAST, ranks, experiment.tile)
        narrow, placing = placed(least, 0)
        if narrow > room:
            held = layers.columns_within(narrow + least, rows, ranks, experiment.tile)
            room, found, kept = narrow + least - layers.at_work(rows, held, ranks, experiment.tile), placing, 0
            file, (written, back) = layers.file_bytes(rows), layers.moved(rows, held)
    features, aggregate = sizes[0] * found.features, sizes[1] * found.aggregate
    if not file:
        # Bytes of the copy beyond the job's own prediction are activations as well.
        shown, foretold = libraries + rank.loaded + rank.growth, memory // per_node - room + kept
        kept += max(0, shown - features - aggregate - foretold)
    over = min(kept, max(0, kept - room))
    again = reads_of_epoch(spec) * (features * toy.reads_input + aggregate)
    written, back = per_node * (over + written), per_node * (over + again + back)
    return {
        "memory_bytes": memory,
        "fits": room >= 0,
        "node_bytes": memory - per_node * (room - (kept - over)),
        "scratch_bytes": per_node * (over + features + aggregate + file),
        "scratch_written_per_epoch": written,
        "scratch_read_per_epoch": back,
    }


def within_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format the memory and disk use of a node for people."""
    lines = []
    for row in rows:
        held = row["within"]
        line = [
            row["ranks"],
            row["nodes"] or "",
            size_in_words(held["node_bytes"]),
            size_in_words(held["scratch_bytes"]),
        ]
        line += [size_in_words(held[f"scratch_{name}_per_epoch"]) for name in ("written", "read")]
        lines.append([*line, "yes" if held["fits"] else "no"])
    headers = ["ranks", "nodes", "memory of\na node", "scratch of\na node", "written per\nepoch", "read per\nepoch"]
    headers += ["fits"]
    return tabulate(lines, headers, tablefmt="simple", disable_numparse=True, stralign="right")
