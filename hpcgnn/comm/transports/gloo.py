"""gloo, the backend of torch.distributed that carries messages: its needs, and how its process groups are made."""

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
    """Raise ConfigError if this torch was built without gloo."""
    if not dist.is_gloo_available():
        raise ConfigError(
            f"--comm torch cannot be used with torch {torch.__version__}, which was built without gloo: install a "
            "torch that has it"
        )


def make_communicator(store: Any, rank: int, size: int, address: str, watchdog: Watchdog | None) -> TorchCommunicator:
    """The verbs over a new process group. Collective. store: torch's, of all ranks; address: of this rank's node on
    the network that leads to the others.
    """
    check_gloo()
    apart = dist.PrefixStore("hpcgnn/sums", store)
    try:
        group = _group(store, rank, size, address)
    except RuntimeError as error:
        raise ConfigError(
            f"rank {rank} of {size} finds no way to the other ranks by gloo from {address}: "
            f"{str(error).splitlines()[0]}; check that no firewall is between the nodes, or choose another network "
            "(GLOO_SOCKET_IFNAME)"
        ) from error
    return TorchCommunicator(group, rank, size, watchdog, lambda: _group(apart, rank, size, address))


def _group(store: Any, rank: int, size: int, address: str) -> Any:
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
