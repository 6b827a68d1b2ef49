"""Out of memory: one line that says what would help this run, in place of a traceback."""

import functools
from collections.abc import Callable

from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.errors import MemoryShortage, memory_shortage
from hpcgnn.memory.resident import resident_bytes


def advising(function: Callable[[Session], int], config: Config) -> Callable[[Session], int]:
    """`function` of a session, whose memory errors end as one line of the rank, with advice for this configuration."""

    @functools.wraps(function)
    def advised(session: Session) -> int:
        try:
            return function(session)
        except Exception as error:
            # A shortage of another rank, which `together` raised here, keeps the words of that rank.
            told: Exception | None = error
            held = ""
            if not str(error).startswith(_MARK):
                told, held = memory_shortage(error), f" (this rank holds {resident_bytes() / 2**30:.2f} GiB)"
            if told is None:
                raise
            shortage = MemoryShortage(f"{told}{held}; {advice(config)}")
            shortage.everywhere = getattr(error, "everywhere", False)
            raise shortage from error

    return advised


_MARK = "out of memory: "


def advice(config: Config) -> str:
    """What would make the memory of a rank smaller, of this configuration."""
    model, schedule = config.model, config.schedule
    linear = model.model == "gcn" or (model.model == "sage" and model.aggregator == "mean")
    helps = ["more ranks (the share of each falls with their number)"]
    if schedule.halo_buffer > 1:
        helps.append(f"a --halo-buffer below {schedule.halo_buffer:g} MiB")
    if config.run.precision == "fp64":
        helps.append("--precision fp32")
    elif config.run.precision == "fp32" and linear and schedule.schedule == "sar":
        helps.append("--precision mixed")
    if schedule.schedule == "sar" and schedule.prune == "none":
        helps.append("--prune auto")
    if schedule.schedule == "stale" and schedule.stale_epochs:
        copies = schedule.stale_epochs + 1
        helps.append(f"--schedule sar (stale holds {copies} copies of the halo of all layers, --stale-epochs + 1)")
    if schedule.schedule == "lazy" and schedule.frozen_halo == "keep" and not linear:
        helps.append("--frozen-halo refetch (lazy keeps a copy of the halo)")
    if model.model != "sgc":
        helps.append(f"a --hidden below {model.hidden}")
    return f"what helps: {', '.join(helps[:-1])} or {helps[-1]}" if len(helps) > 1 else f"what helps: {helps[0]}"
