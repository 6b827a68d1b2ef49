"""Messages between ranks: the schedule, the halo, its format and its buffers."""

from dataclasses import dataclass

from hpcgnn.declaring import Having, at_least, option


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
    assignment: str = option(
        "metis",
        "owner of a node: the stored map, or random clusters or nodes",
        details="metis: the stored map. super-nodes: the file's clusters dealt at random. random-nodes: nodes at "
        "random. The random ones are for experiments: the halo is large.",
        choices=("metis", "super-nodes", "random-nodes"),
    )
    halo: str = option(
        "auto",
        "rows between ranks: all boundary rows, or fewest rows and sums",
        details="rows: the rows of all boundary nodes. least: rows or sums of rows, whichever are fewer; exact. It "
        "serves gcn, sage, gin, sgc and appnp, under schedules that need no single rows. auto: "
        "least where it is possible and saves a twentieth of the rows.",
        choices=("auto", "rows", "least"),
    )
    intra_node: str = option(
        "auto",
        "ranks of a node exchange messages, or read shared memory",
        details="messages: as between nodes. shared (sar, and lazy where layers keep sums): "
        "ranks read rows in shared memory, without copies and buffers. What a node needs of another one "
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
        needs={"schedule": Having("narrows_rows"), "correct_every": at_least(1)},
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
