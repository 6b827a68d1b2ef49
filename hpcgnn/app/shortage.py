"""Out of memory: one line of advice for this run, in place of a traceback."""

import functools
from collections.abc import Callable

from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.errors import MemoryShortage, memory_shortage
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.plan.rules import Selection


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
    """Return the changes of this configuration that would reduce the memory of a rank."""
    model, schedule, selection = config.model, config.schedule, Selection(config)
    layers, traits = selection.layers, selection.schedule
    helps = ["more ranks (the share of each falls with their number)"]
    if schedule.halo_buffer > 1:
        helps.append(f"a --halo-buffer below {schedule.halo_buffer:g} MiB")
    if config.run.precision == "fp64":
        helps.append("--precision fp32")
    elif config.run.precision == "fp32" and layers.mixed_precision and traits.exact_epochs:
        helps.append("--precision mixed")
    if traits.exact_epochs and schedule.prune == "none":
        helps.append("--prune auto")
    copies = selection.entry.halo_copies(config)
    if copies and not (traits.layer_by_layer and layers.neighbours == "sums"):
        held = "a copy" if copies == 1 else f"{copies} copies"
        helps.append(f"--schedule sar ({schedule.schedule} holds {held} of the halo of all layers)")
    if selection.model.stacked:
        helps.append(f"a --hidden below {model.hidden}")
    return f"what helps: {', '.join(helps[:-1])} or {helps[-1]}" if len(helps) > 1 else f"what helps: {helps[0]}"
