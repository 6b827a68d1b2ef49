"""`hpcgnn estimate`: memory, messages and time of a job on any number of ranks."""

import argparse
import json
import sys
from pathlib import Path

from tqdm import tqdm

from hpcgnn.app.choosing_maps import find_map
from hpcgnn.config import Config
from hpcgnn.extras.estimate.forecast import CountedGraph
from hpcgnn.extras.estimate.like import Counts, read_measured
from hpcgnn.extras.estimate.results import TargetNode, as_values, table
from hpcgnn.graphfile.hdf5 import replacing
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.resident import common_bytes, resident_bytes
from hpcgnn.output_files import check_outputs
from hpcgnn.plan.run_plan import ESTIMATED
from hpcgnn.terminal import tell
from hpcgnn.word_list import ranges

# Bytes that loading and starting MPI adds to a process with torch.
_MPI = 40 << 20


def estimate(config: Config, arguments: argparse.Namespace, like: Config | None) -> int:
    """Print the table of an estimate, and write the requested files. like: the configuration of the run of --like."""
    inputs = [config.data.graph, config.model.plugin, arguments.config]
    check_outputs({"--json": arguments.json}, inputs, arguments.force)
    additions = [more for make in ESTIMATED.values() if (more := make(config)) is not None]
    place, rows = place_of(arguments.ranks_per_node), []
    measured = None if like is None else read_measured(like)
    with GraphFile(config.data.graph) as file:
        source = CountedGraph(file, place.ranks_per_node)
        for ranks in tqdm(arguments.ranks, unit="estimate", leave=False, disable=not sys.stderr.isatty()):
            forecast = source.forecast(config, ranks)
            rows.append(as_values(forecast, place) | {more.name: more.values(forecast, place) for more in additions})
            if measured is not None:
                rows[-1]["seconds"] = measured.scaled(Counts.of(forecast))
        made = [row["ranks"] for row in rows if find_map(file, config, row["ranks"])[1] is None]
    lines = [table(rows), *(line for more in additions for line in more.lines(rows))]
    if made:
        lines.append(f"no map is stored for {ranges(made)} ranks: counted with the one that a run makes")
    if any(row["intra_node"] != config.schedule.intra_node == "shared" for row in rows):
        lines.append("counted as with --intra-node messages; say --ranks-per-node N for several ranks on a node")
    if not all(row["bytes_counted"] for row in rows):
        lines.append("bytes are not counted from the graph, but taken from a small copy")
    if measured is not None:
        lines.append(measured.about)
    for line in lines:
        tell(line, needed=True)
    if arguments.json:
        with replacing(arguments.json) as temporary:
            Path(temporary).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def place_of(ranks_per_node: int | None = None) -> TargetNode:
    """Return the TargetNode of a job. Call it before any trial: the libraries are this process's.

    Args:
        ranks_per_node: the number if it is known.
    """
    return TargetNode(resident_bytes() + _MPI, common_bytes(), ranks_per_node)
