"""gloo, the backend of torch.distributed: its groups of processes."""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hpcgnn.comm.health.watchdog import Watchdog
from hpcgnn.comm.launch.launcher import chosen_interface
from hpcgnn.comm.transports.torch_verbs import TorchCommunicator
from hpcgnn.errors import ConfigError

#: The watchdog ends a job that stands still; torch's own limits would end one that is only slow.
FOREVER = timedelta(days=3650)


def check_gloo() -> None:
    """Raise ConfigError where this torch has no gloo."""
    if not dist.is_gloo_available():
        raise ConfigError(
            f"--comm torch cannot be used with torch {torch.__version__}: install a torch that was built with gloo"
        )


def gloo_communicator(store: Any, rank: int, size: int, address: str, watchdog: Watchdog | None) -> TorchCommunicator:
    """The verbs over a new process group. Collective. store: torch's, of all ranks; address: of this rank's node on
    the network that leads to the others. Raises ConfigError or RuntimeError.
    """
    return TorchCommunicator(_gloo(store, rank, size, address), rank, size, watchdog)


def _gloo(store: Any, rank: int, size: int, address: str) -> Any:
    """torch would listen where the host's name leads, which on many nodes is the loopback."""
    gloo: Any = dist.ProcessGroupGloo  # torch's stubs do not know its options
    options, interface = gloo._Options(), chosen_interface()
    try:
        if interface is not None:
            devices = [gloo.create_device(interface=each) for each in interface.split(",")]
        else:
            devices = [gloo.create_device(hostname=address)]
    except RuntimeError as error:
        raise ConfigError(
            f"gloo cannot use {f'GLOO_SOCKET_IFNAME={interface}' if interface else address}: "
            f"{str(error).splitlines()[0]}; expected an interface of this node (`ip -brief address` lists them)"
        ) from error
    options._devices, options._timeout = devices, FOREVER
    return gloo(store, rank, size, options)
