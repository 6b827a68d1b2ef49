"""How much energy the epochs of a run took, if anything on this machine counts it; a reason where nothing does.

The first rank of each node reads the kernel's counters (powercap.py) before the first epoch and after the last one.
Where rank 0 finds none it asks SLURM's accounting of the running step instead. Nothing is estimated: a node that cannot
tell leaves the whole run without a number.
"""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcgnn import cores
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.launch.launcher import slurm_step
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.hooks import Plugin
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.plugins.powercap import ROOT, NotAvailable, find_domains

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOST_SECONDS_BETWEEN_LOOKS = 60.0
ALL_THAT_RAN = "all that ran on these nodes, other jobs too unless the nodes were this job's alone"

Ask = Callable[[Sequence[str]], str]


def ask_slurm(command: Sequence[str]) -> str:
    """Return the output of a SLURM command. Raises NotAvailable."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = "did not answer in 10 s" if isinstance(error, subprocess.TimeoutExpired) else "is not there"
        raise NotAvailable(f"SLURM's {command[0]} {why}") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise NotAvailable(f"SLURM's {command[0]} ended with code {done.returncode} and said: {said}")
    return done.stdout


class Counters:
    """This node's counters, of powercap. A thread looks at them so often that none comes round unseen."""

    def __init__(self, root: Path) -> None:
        self._domains = find_domains(root)
        self._done = threading.Event()
        self._failure: NotAvailable | None = None
        self._pause = min(MOST_SECONDS_BETWEEN_LOOKS, *(domain.seconds_between_looks for domain in self._domains))
        self._thread = threading.Thread(target=self._look_now_and_then, name="hpcgnn-energy", daemon=True)
        self._thread.start()

    def _look_now_and_then(self) -> None:
        cores.use_all()
        while not self._done.wait(self._pause):
            self._look()

    def _look(self) -> None:
        try:
            for domain in self._domains:
                domain.look()
        except NotAvailable as problem:
            self._failure = self._failure or problem

    def end(self) -> dict[str, float]:
        """{kind of domain: joules}, and no more looks. Raises NotAvailable."""
        self._done.set()
        self._thread.join()
        self._look()
        if self._failure is not None:
            raise self._failure
        joules: dict[str, float] = {}
        for domain in self._domains:
            joules[domain.kind] = joules.get(domain.kind, 0.0) + domain.joules
        return joules


class Accounting:
    """SLURM's count of the running step. step: 'JOB.STEP', None outside of one. Raises NotAvailable."""

    def __init__(self, step: str | None, ask: Ask) -> None:
        if step is None:
            raise NotAvailable("SLURM did not start these ranks")
        config = dict(line.split("=", 1) for line in ask(["scontrol", "show", "config"]).splitlines() if "=" in line)
        plugin = {key.strip(): value.strip() for key, value in config.items()}.get("AcctGatherEnergyType", "(null)")
        self.plugin = plugin.removeprefix("acct_gather_energy/")
        if self.plugin in ("none", "(null)", ""):
            raise NotAvailable(f"SLURM does not count energy (AcctGatherEnergyType is {plugin})")
        self._step, self._ask = step, ask
        self._begun = self._joules()

    def _joules(self) -> int:
        said = self._ask(["sstat", "--noheader", "--parsable2", "--format=ConsumedEnergyRaw", f"--jobs={self._step}"])
        try:
            return int(said.split()[0])
        except (IndexError, ValueError) as error:
            raise NotAvailable(f"SLURM's sstat has no energy of the running step (it said {said.strip()!r})") from error

    def end(self) -> int:
        """Joules on all nodes of the step. Raises NotAvailable."""
        joules = self._joules() - self._begun
        if joules <= 0:
            raise NotAvailable("SLURM took no sample of the energy during the epochs (JobAcctGatherFrequency)")
        return joules


class Meter:
    """The energy of one rank's node over the epochs; `reading` has it when they are over. None on ranks that do not
    read.
    """

    def __init__(self, reads: bool, may_ask: bool, root: Path = ROOT, ask: Ask = ask_slurm) -> None:
        """reads: this is the first rank of its node; may_ask: this rank asks SLURM if there are no counters."""
        self._reads, self._may_ask, self._root, self._ask = reads, may_ask, root, ask
        self.reading: dict[str, Any] | None = None

    @classmethod
    def of(cls, comm: Communicator) -> "Meter":
        """This rank's. Collective. Virtual nodes on one machine count as one: their counters are the same."""
        kernels = comm.allgather_object(_kernel())
        return cls(reads=kernels.index(kernels[comm.rank]) == comm.rank, may_ask=comm.rank == 0)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """The body is the epochs."""
        if not self._reads:
            yield
            return
        reading: dict[str, Any] = {"host": socket.gethostname()}
        source: Counters | Accounting | None = None
        try:
            source = Counters(self._root)
        except NotAvailable as problem:
            reading["reason"] = str(problem)
            if self._may_ask:
                try:
                    source = Accounting(slurm_step(), self._ask)
                except NotAvailable as other:
                    reading["slurm"] = {"reason": str(other)}
        try:
            yield
        finally:
            self.reading = _finished(source, reading)


class Energy(Plugin):
    """The energy of the epochs, in the records of the ranks and in summary.json."""

    def __init__(self) -> None:
        self._reading: dict[str, Any] | None = None

    @contextlib.contextmanager
    def run(self, trainer: "Trainer") -> Iterator[None]:
        """See Plugin. Collective."""
        meter = Meter.of(trainer.comm)
        with meter.watching():
            yield
        self._reading = meter.reading

    def record(self) -> dict[str, Any]:
        return {"energy": self._reading}

    def summary(self, ranks: Sequence[dict[str, Any]], epochs: tuple[int, int]) -> dict[str, Any]:
        return {"energy": find_energy([rank["energy"] for rank in ranks], epochs)}


def make(config: Config, session: Session, buffers: HaloBuffers) -> Energy:
    """The plugin of every job."""
    return Energy()


def _finished(source: Counters | Accounting | None, reading: dict[str, Any]) -> dict[str, Any]:
    """Return a reading completed with the final values of its source."""
    if isinstance(source, Counters):
        try:
            return reading | {"joules": source.end()}
        except NotAvailable as problem:
            return reading | {"reason": str(problem)}
    if isinstance(source, Accounting):
        try:
            return reading | {"slurm": {"joules": source.end(), "plugin": source.plugin}}
        except NotAvailable as problem:
            return reading | {"slurm": {"reason": str(problem)}}
    return reading


def _kernel() -> str:
    """The name of this start of this machine's kernel, whose counters are read."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def find_energy(readings: Sequence[dict[str, Any] | None], epochs: tuple[int, int]) -> dict[str, Any]:
    """Return the entry `energy` of summary.json.

    Args:
        readings: one of `Meter` per rank, or None.
        epochs: the first and the last epoch of the run.

    Returns:
        {'joules', 'joules_per_epoch', 'epochs', 'nodes', 'domains', 'source', 'covers'}, or {'joules': None, 'reason'}.
    """
    first, last = epochs
    nodes = [one for one in readings if one is not None]
    silent = [one for one in nodes if "joules" not in one]
    slurm = next((one["slurm"] for one in nodes if "slurm" in one), {"reason": ""})
    if last < first:
        return _nothing("no epoch was run")
    if nodes and not silent:
        domains: dict[str, float] = {}
        for one in nodes:
            for kind, joules in one["joules"].items():
                domains[kind] = domains.get(kind, 0.0) + joules
        source, what = "powercap", " and ".join(_in_words(kind, nodes) for kind in domains)
    elif "joules" in slurm:
        domains = {slurm["plugin"]: float(slurm["joules"])}
        source, what = "slurm", f"what SLURM's plugin {slurm['plugin']} counts"
    elif not silent:
        return _nothing("no rank has read a counter")
    else:
        where = f"on {silent[0]['host']} " if len(nodes) > 1 else ""
        return _nothing("; and ".join(filter(None, [f"{where}{silent[0]['reason']}", slurm["reason"]])))
    total = sum(domains.values())
    return {
        "joules": total,
        "joules_per_epoch": total / (last - first + 1),
        "epochs": [first, last],
        "nodes": len(nodes),
        "domains": domains,
        "source": source,
        "covers": f"{what}: {ALL_THAT_RAN}",
    }


def _nothing(reason: str) -> dict[str, Any]:
    return {"joules": None, "reason": f"not available, because {reason}"}


def _in_words(kind: str, nodes: Sequence[dict[str, Any]]) -> str:
    """Describe a kind of domain, and the number of its nodes if some nodes lack it."""
    counted = sum(kind in one["joules"] for one in nodes)
    some = f" (on {counted} of {len(nodes)} nodes)" if counted < len(nodes) else ""
    return {"package": "processors", "dram": "memory", "psys": "whole platform"}[kind] + some
