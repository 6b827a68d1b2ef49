"""The backends of torch.distributed that can carry messages: their needs, and how their process groups are made."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hpcgnn.comm.health.watchdog import Watchdog
from hpcgnn.comm.launch.launcher import chosen_interface
from hpcgnn.comm.transports.torch_alltoall import AllToAllCommunicator
from hpcgnn.comm.transports.torch_verbs import TorchCommunicator
from hpcgnn.errors import ConfigError

#: The watchdog ends a job that stands still; torch's own limits would end one that is only slow.
FOREVER = timedelta(days=3650)


@dataclass(frozen=True)
class Backend:
    """module: registers the backend with torch when it is imported. there: whether this torch and machine have it."""

    module: str | None
    there: Callable[[], bool]
    remedy: str


BACKENDS = {
    "gloo": Backend(None, dist.is_gloo_available, "install a torch that was built with gloo"),
    "ccl": Backend(
        "oneccl_bindings_for_pytorch", lambda: "ccl" in dist.Backend.backend_list,
        "install the oneccl_bindings_for_pytorch that belongs to this torch (the last is of torch 2.8; see "
        "docs/cluster.md), or use --comm torch"
    ),
}  # fmt: skip


def load_backend(name: str) -> Backend:
    """The backend of this name, registered with torch. Raises ConfigError if it is not there."""
    backend = BACKENDS[name]
    reason = "this torch or this machine does not have it"
    try:
        if backend.module is not None:
            importlib.import_module(backend.module)
        if backend.there():
            return backend
    except (ImportError, OSError, RuntimeError) as error:  # built for another torch, or a library of it is missing
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    option = "torch" if name == "gloo" else name
    raise ConfigError(f"--comm {option} cannot be used with torch {torch.__version__} ({reason}): {backend.remedy}")


def make_communicator(
    name: str, store: Any, rank: int, size: int, address: str, watchdog: Watchdog | None
) -> TorchCommunicator:
    """The verbs over a new process group. Collective. store: torch's, of all ranks; address: of this rank's node on
    the network that leads to the others.
    """
    load_backend(name)
    try:
        if name == "gloo":
            apart = dist.PrefixStore("hpcgnn/sums", store)
            group = _gloo(store, rank, size, address)
            return TorchCommunicator(group, rank, size, watchdog, lambda: _gloo(apart, rank, size, address))
        dist.init_process_group(name, store=store, rank=rank, world_size=size, timeout=FOREVER)
    except RuntimeError as error:
        raise ConfigError(
            f"rank {rank} of {size} finds no way to the other ranks by {name} from {address}: "
            f"{str(error).splitlines()[0]}; check that no firewall is between the nodes, or choose another network "
            "(GLOO_SOCKET_IFNAME)"
        ) from error
    return AllToAllCommunicator(dist.group.WORLD, rank, size, watchdog)


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
