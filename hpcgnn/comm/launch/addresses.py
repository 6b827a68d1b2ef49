"""Numeric addresses: of the node on which rank 0 runs, and of this one."""

import fcntl
import re
import shutil
import socket
import struct
import subprocess

from hpcgnn.errors import ConfigError

_SIOCGIFADDR = 0x8915
_SECONDS_OF_SCONTROL = 30
LOOPBACK = "127.0.0.1"


def resolve(host: str) -> str:
    """The numeric address of a host, IPv4 where it has one. A name that the system does not know may be one of SLURM's.

    Raises ConfigError.
    """
    for name in (host, _address_of_node(host)):
        found = _addresses(name) if name else []
        if found:
            return found[0]
    raise ConfigError(
        f"the node of rank 0, {host!r}, has no address: neither the system's names nor `scontrol show node {host}` "
        "know it; set MASTER_ADDR to an address of that node"
    )


def _addresses(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(place[0]) for _, _, _, _, place in sorted(found, key=lambda each: each[0] != socket.AF_INET)]


def _address_of_node(node: str) -> str | None:
    """Return SLURM's address of a node, a name or a number."""
    if shutil.which("scontrol") is None:
        return None
    try:
        done = subprocess.run(
            ["scontrol", "show", "node", node], capture_output=True, text=True, timeout=_SECONDS_OF_SCONTROL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"NodeAddr=(\S+)", done.stdout)
    return found[1] if found else None


def own_addresses() -> list[str]:
    """Return IPv4 addresses of this host: first those of its name, last its loopback address."""
    own = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an address
                continue
            own.append(socket.inet_ntoa(answer[20:24]))
    named = _addresses(socket.gethostname())
    return sorted(set(own), key=lambda each: (each.startswith("127."), each not in named, own.index(each)))


def is_own(address: str) -> bool:
    """Whether this host can listen there."""
    try:
        with socket.create_server((address, 0), family=family_of(address)):
            return True
    except OSError:
        return False


def family_of(address: str) -> socket.AddressFamily:
    """IPv4 or IPv6."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET
