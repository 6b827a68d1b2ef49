"""The memory line of a dry run: the memory of the largest rank, and whether the nodes of the job have it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hpcgnn.app.shortage import advice
from hpcgnn.comm.launcher import node_of_job
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError, TrainingError
from hpcgnn.estimate.counts.sources import CountedGraph
from hpcgnn.estimate.results import Place, as_values, size_in_words
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.tasks.registry import task_traits

# With more edges, counting takes minutes, and a dry run should not.
MOST_EDGES = 20_000_000


def memory_lines(config: Config, rank_counts: Iterable[int], place: Place) -> Iterator[str]:
    """Yield a line for each number of ranks.

    Args:
        config: the configuration.
        rank_counts: numbers of ranks.
        place: `place_of()` before any trial.

    Raises:
        ConfigError: after the last line, if some number of ranks does not fit. This needs the batch system's memory of
            a node, and the placement of ranks on nodes.
    """
    refused = []
    if not task_traits(config.task.task).labels:
        yield "memory: not estimated for a task without labels"
        return
    with GraphFile(config.data.graph) as file:
        if file.meta.num_edges > MOST_EDGES:
            yield f"memory: not estimated for {file.meta.num_edges:,} edges, which takes long; see `hpcgnn estimate`"
            return
        try:
            source = CountedGraph(file)
            found = [source.forecast(config, ranks) for ranks in rank_counts]
        except TrainingError as error:
            yield f"memory: not estimated, because a made-up graph could not be trained on: {error}"
            return
    for forecast in found:
        ranks = forecast.shares.ranks
        memory, on_node = node_of_job(ranks)
        values = as_values(forecast, replace(place, ranks_per_node=on_node))
        peak, libraries, held = values["peak_rss_bytes"], values["libraries_rss_bytes"]["max"], values["node_bytes"]
        yield (
            f"memory on {ranks} rank{'s' * (ranks > 1)}: about {size_in_words(peak['max'])} on the largest, "
            f"{size_in_words(peak['sum'])} on all, with {size_in_words(libraries)} of libraries on each"
        )
        if memory is not None and on_node is not None and held > memory:
            refused.append(f"{ranks} ({size_in_words(held)} on a node of {min(ranks, on_node)})")
    if refused:
        raise ConfigError(
            f"the job has {size_in_words(memory or 0)} on a node, which is too little for this number of ranks: "
            f"{', '.join(refused)}; ask for more (--mem) or for more nodes; {advice(config)}"
        )
