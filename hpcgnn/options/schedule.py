"""Messages between ranks: the schedule, the halo, its format and its buffers."""

from dataclasses import dataclass

from hpcgnn.option_fields import Having, option


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    schedule: str = option("sar", "communication schedule (docs/schedules.md)", flag=True, choices="schedules")
    halo_buffer: float = option(
        8.0,
        "MiB of all communication buffers of a rank",
        details="The size does not depend on the number of ranks.",
        flag=True,
        least=0.0,
        most=2.0**33,
    )
    halo: str = option(
        "auto",
        "rows between ranks: all boundary rows, or fewest rows and sums",
        details="least: rows or sums of rows, whichever are fewer; exact. auto: least where it saves a twentieth of "
        "the rows.",
        choices=("auto", "rows", "least"),
    )
    intra_node: str = option(
        "auto",
        "ranks of a node exchange messages, or read shared memory",
        details="auto: shared on one node, and where that saves a twentieth of the rows between nodes "
        "(docs/schedules.md).",
        choices=("messages", "shared", "auto"),
    )
    halo_dtype: str = option(
        "fp32",
        "format of features and gradients between ranks in training",
        details="bf16: half the bytes. int8: a fourth. Attention logits and evaluation stay unchanged.",
        flag=True,
        choices=("fp32", "bf16", "int8"),
        needs={"schedule": Having("narrows_rows"), "correct_every": range(1, 2**31)},
    )
    prune: str = option(
        "auto",
        "sar: compute and send only rows that the training loss depends on",
        details="Exact. auto: where half of the rows are saved (gat: four in ten). none: compute all rows.",
        choices=("auto", "none"),
        schedules=Having("exact_epochs"),
    )
