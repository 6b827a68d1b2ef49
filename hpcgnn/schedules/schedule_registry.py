"""The schedules that `--schedule` offers: name -> build(local, comm, buffers, config, random) -> Schedule. And what of
the graph's structure each of them can do with.
"""

from collections.abc import Callable

from hpcgnn.comm import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.narrow import rounds_at_random
from hpcgnn.graph.local import LocalGraph
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.draws import Randomness
from hpcgnn.options.memory_size import said_memory
from hpcgnn.options.task import LINKS
from hpcgnn.schedules.base import Schedule
from hpcgnn.schedules.bns import build_bns
from hpcgnn.schedules.lazy import build_lazy
from hpcgnn.schedules.sar import build_sar
from hpcgnn.schedules.stale import build_stale
from hpcgnn.schedules.tma import build_tma

Build = Callable[[LocalGraph, Communicator, HaloBuffers, Config, Randomness], Schedule]
SCHEDULES: dict[str, Build] = {
    "sar": build_sar,
    "lazy": build_lazy,
    "tma": build_tma,
    "bns": build_bns,
    "stale": build_stale,
}


def prunes(config: Config) -> bool:
    """Whether layers may compute some of their rows only in training (see graph/pruning.py)."""
    options = config.schedule
    # What is rounded at random is so by draws for the rows of the whole share, as it numbers them.
    apart = options.schedule == "sar" and options.prune == "auto" and not rounds_at_random(options.halo_dtype)
    return apart and config.task.task != LINKS  # whose loss sees all rows


def takes_sums(config: Config, spec: ModelSpec) -> bool:
    """Whether ranks may send sums of rows in place of rows (see graph/least.py): where all that layers do with rows of
    others is to sum them, with factors that do not change, and the schedule needs none of them by itself.
    """
    options = config.schedule
    keeps_rows = spec.sparse_input or (spec.input_dropout == "raw" and spec.dropout > 0)
    # tma: in exact steps and evaluations
    serves = options.schedule in ("sar", "stale", "tma") or options.schedule == "lazy" and not keeps_rows
    # A sum may leave the range of fp16 where no row does.
    # The loss of links reads the rows of sources one by one, and dropped edges would change what a sum has.
    serves = serves and config.task.task != LINKS and not config.model.edge_dropout
    return serves and options.halo_dtype != "fp16" and MODELS[spec.model].sums(spec)


def halo_of(config: Config, spec: ModelSpec) -> str:
    """What --halo comes to: 'rows' where ranks may not send sums."""
    return config.schedule.halo if takes_sums(config, spec) else "rows"


def features_travel(config: Config, spec: ModelSpec) -> bool:
    """Whether rows of the features themselves are exchanged, of a model that `takes_sums`."""
    return config.schedule.schedule == "lazy" or spec.keeps_input or MODELS[spec.model].features_again(spec)


def reads_in_place(config: Config, spec: ModelSpec) -> bool:
    """Whether the ranks of a node can read each other's rows where they are (--intra-node shared): where nothing but
    the own block of a stream is made of them.
    """
    entry, memory = MODELS[spec.model], said_memory(config.run.memory) is not None
    serves = entry.sums(spec) or spec.model == "gat" and not entry.edges(spec) and not spec.edge_features
    plain = config.schedule.schedule == "sar" and config.task.task != LINKS and not memory
    plain = plain and not config.model.edge_dropout
    return serves and plain and config.run.comm == "mpi"


def check_halo(config: Config, spec: ModelSpec) -> None:
    """Raise ConfigError where sums are asked for that ranks may not send, or rows in place that cannot be read so."""
    options = config.schedule
    if options.intra_node == "shared" and not reads_in_place(config, spec):
        raise ConfigError(
            "--intra-node shared: expected --comm mpi, --schedule sar, and gcn, sage with --aggregator mean, gin, sgc, "
            f"appnp, or gat without terms of edges; no --memory, no --edge-dropout, and not --task {LINKS}; got --comm "
            f"{config.run.comm}, --schedule {options.schedule}, --model {spec.model}; use --intra-node messages"
        )
    if options.halo == "least" and halo_of(config, spec) == "rows":
        raise ConfigError(
            f"--halo least: --model {spec.model} with --schedule {options.schedule} and --halo-dtype "
            f"{options.halo_dtype} needs the rows of neighbours one by one; expected gcn, sage with --aggregator mean, "
            "gin or sgc; sar, stale, tma, or lazy with dense features and without --input-dropout raw; not fp16, whose "
            f"range a sum may leave; no --edge-dropout; and not --task {LINKS}; use --halo auto, which sends sums "
            "where it can"
        )
