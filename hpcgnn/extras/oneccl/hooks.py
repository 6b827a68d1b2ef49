"""The transports `oneccl` and `ccl`."""

from typing import TYPE_CHECKING

from hpcgnn.comm.session import TRANSPORTS, Transport
from hpcgnn.traits import TransportTraits

if TYPE_CHECKING:
    from hpcgnn.extras.oneccl.ccl import StartedCcl
    from hpcgnn.extras.oneccl.start import StartedOneCcl


def start_oneccl(limit: float, failure: tuple[str, str] | None) -> "StartedOneCcl":
    """Start MPI, and load oneCCL's library."""
    from hpcgnn.extras.oneccl.start import StartedOneCcl

    return StartedOneCcl(limit, failure)


def start_ccl(limit: float, failure: tuple[str, str] | None) -> "StartedCcl":
    """Start torch.distributed with its backend ccl."""
    from hpcgnn.extras.oneccl.ccl import StartedCcl

    return StartedCcl(limit, failure)


TRANSPORTS.register("oneccl", Transport(start_oneccl, TransportTraits(pairwise=False)))
TRANSPORTS.register("ccl", Transport(start_ccl, TransportTraits(pairwise=False)))
