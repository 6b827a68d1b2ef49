"""Virtual environments of the peers, one each, because their versions of common packages need not agree with ours.

They are made on first use and kept. torch is the version that the project itself pins, so that all systems compute with
the same library. A package that cannot be installed or imported is absent, with the reason; that is a result and no
error.
"""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from shared.processes import last_words

ROOT = Path(__file__).resolve().parents[3]
PEER_CODE = Path(__file__).parent / "peers"
CONSTRAINTS = ROOT / "env" / "constraints.txt"
_COMMON = ("torch", "numpy", "h5py")
# What dgl imports without saying so in its metadata.
_DGL = (*_COMMON, "dgl==2.1.0", "packaging", "pandas", "pyyaml", "pydantic")
_SAR = "sar-gnn @ git+https://github.com/IntelLabs/SAR@6a9a89511cfa1df4b61c34d38eb6c9546469ed9f"


class Absent(Exception):
    """A peer that cannot take part; the message is the reason."""


@dataclass(frozen=True)
class Peer:
    """requirements: arguments of pip, none for the project's own environment; module: of peers/, which
    does the measurement; parallel: whether it runs on several ranks."""

    requirements: tuple
    module: str
    parallel: bool = False


PEERS = {
    "dgl": Peer(_DGL, "dgl_peer"),
    "pyg": Peer((*_COMMON, "torch_geometric==2.8.1"), "pyg_peer"),
    "sar": Peer((*_DGL, _SAR), "sar_peer", parallel=True),
    "torch": Peer((), "torch_peer"),
}


def peer_python(system, folder, limit_seconds=1800):
    """The interpreter of a peer's environment in `folder`, which is made if it is not there. Raises Absent."""
    peer, home = PEERS[system], Path(folder).resolve() / system
    if not peer.requirements:
        return Path(sys.executable)
    python, stamp = home / "bin" / "python", home / "installed"
    wanted = hashlib.sha256("\n".join([*peer.requirements, CONSTRAINTS.read_text()]).encode()).hexdigest()
    try:
        if not (stamp.exists() and stamp.read_text() == wanted):
            home.parent.mkdir(parents=True, exist_ok=True)
            _run([sys.executable, "-m", "venv", "--clear", str(home)], limit_seconds, "making its environment")
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, "--constraint", str(CONSTRAINTS), *peer.requirements], limit_seconds, "installing it")
            _run([str(python), "-c", f"import {peer.module}"], limit_seconds, "importing it", PYTHONPATH=str(PEER_CODE))
            stamp.write_text(wanted)
    except OSError as error:
        raise Absent(f"its environment {home} cannot be made: {error.strerror}") from error
    return python


def _run(command, limit_seconds, doing, **environment):
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_seconds, env={**os.environ, **environment}
        )
    except subprocess.TimeoutExpired as error:
        raise Absent(f"{doing} took longer than {limit_seconds} s") from error
    if done.returncode:
        raise Absent(f"{doing} failed: {last_words(done.stderr or done.stdout)}")
