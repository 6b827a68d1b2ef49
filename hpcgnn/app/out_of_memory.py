"""Out of memory: one line of advice, in place of a traceback."""

import functools
from collections.abc import Callable

from hpcgnn.comm.session import Session
from hpcgnn.errors import MemoryShortage, memory_shortage
from hpcgnn.memory.resident import resident_bytes

ADVICE = (
    "what helps: more ranks (the share of each falls with their number), --schedule sar, or a smaller --halo-buffer, "
    "--hidden or --precision (docs/less-memory.md)"
)
_MARK = "out of memory: "


def with_memory_advice(function: Callable[[Session], int]) -> Callable[[Session], int]:
    """`function` of a session, whose memory errors end as one line of the rank, with advice."""

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
            shortage = MemoryShortage(f"{told}{held}; {ADVICE}")
            shortage.everywhere = getattr(error, "everywhere", False)
            raise shortage from error

    return advised
