"""The line about memory of a dry run: what the largest rank will hold, and whether the nodes of the job have that."""

from collections.abc import Iterable, Iterator

from hpcgnn.comm.launcher import node_of_job
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.estimate.command import forecasts, place_of
from hpcgnn.estimate.results import Place, as_values, size_in_words
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.train.shortage import advice

# Above so many edges counting takes minutes, and a dry run should not.
MOST_EDGES = 200_000_000


def place_of_job() -> Place:
    """The nodes of the job, as the batch system says. To be asked before anything is tried out in this process."""
    memory, on_node = node_of_job()
    return place_of(None, memory, on_node)


def memory_lines(config: Config, rank_counts: Iterable[int], place: Place) -> Iterator[str]:
    """A line for each number of ranks. place: from `place_of_job`. Raises ConfigError where the batch system says what
    memory the nodes of the job give, and it is less than their ranks will hold.
    """
    with GraphFile(config.data.graph) as file:
        if file.meta.num_edges > MOST_EDGES:
            yield f"memory: not estimated for {file.meta.num_edges:,} edges, which takes minutes; see `hpcgnn estimate`"
            return
    for forecast in forecasts(config, rank_counts):
        found = as_values(forecast, None, None, place, config.optim.epochs)
        peak, libraries = found["peak_rss_bytes"], found["libraries_rss_bytes"]["max"]
        ranks, held = found["ranks"], found["node_bytes"]
        yield (
            f"memory on {ranks} rank{'s' * (ranks > 1)}: about {size_in_words(peak['max'])} on the largest, "
            f"{size_in_words(peak['sum'])} on all, with {size_in_words(libraries)} of libraries on each"
        )
        if found["fits"] is False and place.memory is not None:
            raise ConfigError(
                f"{min(ranks, place.ranks_per_node or ranks)} ranks on a node will hold about {size_in_words(held)}, "
                f"and the job has {size_in_words(place.memory)} on each (--mem); give it more; {advice(config)}"
            )
