"""The form of the halo exchange: rows or sums of rows, in place or as messages, all rows or some."""

from collections.abc import Callable

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.wire import rounds_at_random
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.plan.rules import Selection

MANY_RANKS = 8  # of a node: see `rows_in_place_pay`
#: needs(config) of extras: whether ranks of a node cannot read each other's rows in place.
NEEDS_MESSAGES: list[Callable[[Config], bool]] = []


def prunes(config: Config) -> bool:
    """Whether layers may compute some of their rows only in training (graph/transforms/pruning.py)."""
    options, selection = config.schedule, Selection(config)
    # Random rounding draws by the row numbers of the whole share.
    apart = options.prune == "auto" and not rounds_at_random(options.halo_dtype)
    return apart and selection.schedule.exact_epochs and not selection.task.all_rows


def takes_sums(config: Config, spec: ModelSpec) -> bool:
    """Whether ranks may send sums of rows in place of rows (graph/transforms/vertex_cover.py).

    Layers must make only sums with fixed factors of rows of others, and the schedule must need no single row.
    """
    selection, traits = Selection(config), MODELS[spec.model].traits(spec)
    keeps_rows = spec.sparse_input or (spec.input_dropout == "raw" and spec.dropout > 0)
    allowed = {"always": True, "dense": not keeps_rows, "never": False}[selection.schedule.partial_sums]
    # A loss of all rows reads single rows of sources, and other edges would change the terms of a sum.
    allowed = allowed and not selection.task.all_rows and spec.same_edges
    return allowed and traits.fixed_sums


def halo_of(config: Config, spec: ModelSpec) -> str:
    """Return the value of --halo that takes effect: 'rows' where ranks may not send sums."""
    return config.schedule.halo if takes_sums(config, spec) else "rows"


def features_travel(config: Config, spec: ModelSpec) -> bool:
    """Whether rows of the features themselves are exchanged, of a model that `takes_sums`."""
    once = Selection(config).schedule.layer_by_layer or spec.keeps_input
    return once or MODELS[spec.model].sends_input(spec)


def reads_in_place(config: Config, spec: ModelSpec) -> bool:
    """Return whether ranks of a node can read each other's rows in place (--intra-node shared).

    Layer by layer, this holds if nothing of single rows is kept.
    """
    selection = Selection(config)
    frozen = takes_sums(config, spec) or not selection.entry.halo_copies(config)
    serves = selection.schedule.exact_epochs or (selection.schedule.layer_by_layer and frozen)
    plain = not selection.task.all_rows and spec.same_edges and config.model.keep == "exact"
    plain = plain and not any(needs(config) for needs in NEEDS_MESSAGES)
    return serves and plain and selection.transport.node_memory


def intra_node_of(config: Config, spec: ModelSpec) -> str:
    """'messages' or 'shared', of --intra-node; 'auto' where rows could be read in place, and counts decide."""
    asked = config.schedule.intra_node
    return "messages" if asked == "auto" and not reads_in_place(config, spec) else asked


def rows_in_place_pay(ranks_on_node: int, huge_pages: bool) -> bool:
    """Whether --intra-node auto may read rows in place.

    Without huge pages a rank takes more time for a row of another one. A node's saved bytes grow with its ranks, so
    many ranks still gain on a fast network (docs/performance.md, "Ranks of one node").

    Args:
        ranks_on_node: the most ranks of a node.
        huge_pages: whether shared memory has huge pages on all nodes.
    """
    return huge_pages or ranks_on_node >= MANY_RANKS


def check_halo(config: Config, spec: ModelSpec) -> None:
    """Raise ConfigError for sums that ranks may not send, or for rows that cannot be read in place."""
    options = config.schedule
    if options.intra_node == "shared" and not reads_in_place(config, spec):
        raise ConfigError(
            "--intra-node shared: expected --comm mpi, and --schedule sar, or lazy with a model that keeps sums or "
            "with --frozen-halo refetch; the same edges in all epochs, no --memory, only --keep exact, a task of "
            f"labels; got --comm {config.run.comm}, --schedule {options.schedule}, --model {spec.model}; use "
            "--intra-node messages"
        )
    if options.halo == "least" and halo_of(config, spec) == "rows":
        raise ConfigError(
            f"--halo least: --model {spec.model} with --schedule {options.schedule} needs the rows of "
            "neighbours one by one; expected gcn, sage with --aggregator mean, gin or sgc; sar, stale, tma, or lazy "
            "with dense features and without --input-dropout raw; the same edges in all epochs; and a task of labels; "
            "use --halo auto, which sends sums where it can"
        )
