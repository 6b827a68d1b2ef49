"""Messages between ranks: the schedule, the halo, its format and its buffers."""

from dataclasses import dataclass

from hpcgnn.declaring import AtLeast, Having, option


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    schedule: str = option("sar", "communication schedule (docs/schedules.md)", flag=True, choices="schedules")
    halo_buffer: float = option(
        8.0,
        "MiB of all communication buffers of a rank",
        details="The size does not depend on the number of ranks. Large buffers give the one-shot exchange, small "
        "ones sequential aggregation in fine steps.",
        flag=True,
        least=0.0,
        most=2.0**33,
    )
    finetune: int = option(
        0,
        "lazy: epochs of exact training after the last layer",
        details="All layers are trained together, as with sar.",
        least=0,
        schedules=("lazy",),
    )
    frozen_halo: str = option(
        "keep",
        "lazy: keep the halo's rows in memory, or refetch them every epoch",
        details="For layers that weigh neighbours anew in every epoch (gat and others) and for sparse features. On "
        "bad maps the halo is larger than a rank's share.",
        choices=("keep", "refetch"),
        schedules=("lazy",),
    )
    assignment: str = option(
        "metis",
        "owner of a node: the stored map, or random clusters or nodes",
        details="metis: the stored map. super-nodes: the file's clusters dealt at random. random-nodes: nodes at "
        "random. The random ones are for experiments: the halo is large.",
        choices=("metis", "super-nodes", "random-nodes"),
    )
    private_features: bool = option(
        False,
        "refuse to send features more than once in a run",
        details="summary.json lists the data that left each rank.",
    )
    halo: str = option(
        "auto",
        "rows between ranks: all boundary rows, or fewest rows and sums",
        details="rows: the rows of all boundary nodes. least: rows or sums of rows, whichever are fewer; exact. It "
        "serves gcn, sage with --aggregator mean, gin, sgc and appnp, under sar, lazy, stale and tma. auto: "
        "least where it is possible and saves a twentieth of the rows.",
        choices=("auto", "rows", "least"),
    )
    intra_node: str = option(
        "auto",
        "ranks of a node exchange messages, or read shared memory",
        details="messages: as between nodes. shared (sar, and lazy where layers keep sums or with --frozen-halo "
        "refetch): ranks read rows in shared memory, without copies and buffers. What a node needs of another one "
        "crosses the network once, in lanes of all its ranks. Results differ by rounding. auto: shared where "
        "options and memory allow it and a twentieth of the rows between nodes is saved. It needs huge pages of "
        "shared memory, or 8 ranks of a node. Else, and on one node: messages.",
        choices=("messages", "shared", "auto"),
    )
    halo_dtype: str = option(
        "fp32",
        "format of features and gradients between ranks in training",
        details="fp32: unchanged (fp64 with --precision fp64). bf16: half the bytes. int8: a fourth, "
        "with a scale per row and random rounding. Attention logits and evaluation stay unchanged.",
        flag=True,
        choices=("fp32", "bf16", "int8"),
        needs={"schedule": Having("narrows_rows"), "correct_every": AtLeast(1)},
    )
    reduce_dtype: str = option(
        "fp32",
        "format of parameter gradients between ranks",
        details="bf16: half the bytes, added in fp32. One rank adds each share and sends the rounded sum to all: 2 (P "
        "- 1) messages of a rank.",
        choices=("fp32", "bf16"),
        needs={"schedule": Having("sums_gradients"), "correct_every": AtLeast(1)},
    )
    reduce_bucket: float = option(
        1.0,
        "MiB of gradients in each sum over ranks; 0: one sum",
        details="Parts of whole layers are summed during the backward pass of earlier layers. A "
        "transport of collective calls alone sums all gradients at the end.",
        least=0.0,
        most=1e6,
        needs={"schedule": Having("sums_by_layer"), "correct_every": AtLeast(1)},
    )
    prune: str = option(
        "auto",
        "sar: compute and send only rows that the training loss depends on",
        details="The last layer computes training nodes, the layer before their neighbours too, and so on. Exact. "
        "Used where the model allows it and half of the rows are saved (gat: four in ten). none: compute all "
        "rows.",
        choices=("auto", "none"),
        schedules=Having("exact_epochs"),
    )
    stale_epochs: int = option(
        1,
        "stale: age of remote rows and gradients in epochs; 0: sar",
        details="New rows are exchanged in the background. Memory: the halo of all layers, for one epoch more than "
        "this.",
        least=0,
        schedules=("stale",),
    )
    steps: int = option(
        8,
        "historical, batches: optimizer steps of an epoch; 1: sar",
        details="Each step is on a share of the clusters of the graph file. historical: rows of other shares are of "
        "the last time they were computed. batches: all rows that the share's training nodes depend on are computed.",
        least=1,
        schedules=Having("by_shares"),
        on_resume="same",
    )
    history_dtype: str = option(
        "fp32",
        "historical: format of the last rows that are kept",
        details="bf16: half the bytes, also of their messages. int8: a fourth, with a scale per row and random "
        "rounding. Sums read rows in this format, fresh ones as well. For layers that sum rows with given weights.",
        choices=("fp32", "bf16", "int8"),
        schedules=("historical",),
        on_resume="same",
    )
    extra_rows: float = option(
        0.0,
        "historical: computed rows of other shares, as a part of own ones",
        details="They have most edges to the rows of the step. Gradients reach their edges, too, and an epoch computes "
        "this part more rows (docs/schedules-measured.md).",
        least=0.0,
        most=100.0,
        schedules=("historical",),
        on_resume="same",
    )
