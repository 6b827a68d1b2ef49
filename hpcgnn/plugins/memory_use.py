"""The memory of a rank before the graph, before training and at its peak; with `--profile-memory` also by phase."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.hooks import Plugin
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.memory.resident import common_bytes, resident_bytes, shared_bytes
from hpcgnn.plugins.account import make_account
from hpcgnn.plugins.live_tensors import LiveTensors
from hpcgnn.plugins.memory_profile import MemoryProfile, PeakMemory, trim_heap
from hpcgnn.records import spread

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

log = logging.getLogger("hpcgnn")


class MemoryUse(Plugin):
    """Measures a rank from the moment before its share of the graph is read to the last epoch."""

    def __init__(self, config: Config, session: Session, buffers: HaloBuffers) -> None:
        trim_heap()
        self._peak, self._session = PeakMemory(), session
        self._libraries, self._shared, self._code = resident_bytes(), shared_bytes(), common_bytes()
        self._baseline, self._facts = 0, dict[str, Any]()
        self._profile = None
        if config.run.profile_memory:
            self.watch = self._profile = MemoryProfile(self._peak, buffers.arena, LiveTensors())

    def loaded(self) -> None:
        trim_heap()
        self._baseline = resident_bytes()
        if not self._peak.begin_span():
            log.warning(
                "the kernel does not let the memory's high-water mark be reset: training_growth_bytes is unknown"
            )

    @contextlib.contextmanager
    def run(self, trainer: "Trainer") -> Iterator[None]:
        yield
        self._peak.read()
        # Rows of others that this process has read in place are theirs.
        foreign = windows = 0
        if (in_place := trainer.views.in_place) is not None:
            foreign = in_place.foreign_bytes()
            windows = foreign + in_place.own_bytes + in_place.common_bytes()
        known = self._peak.was_reset
        self._facts = {
            "libraries_rss_bytes": self._libraries,
            "libraries_code_bytes": self._code,
            "baseline_rss_bytes": self._baseline,
            "peak_rss_bytes": self._peak.overall - foreign,
            "training_growth_bytes": self._peak.span - foreign - self._baseline if known else float("nan"),
            "memory_profile": None,
        }
        if self._profile is not None and known:
            mpi = max(0, shared_bytes() - self._shared - windows)
            self._facts["memory_profile"] = {
                "base_bytes": self._libraries,
                "base_mpi_bytes": self._session.mpi_bytes,
                "phase_peak_bytes": self._profile.marks,
                "account_bytes": make_account(trainer, trainer.local, self._profile, mpi),
            }

    def record(self) -> dict[str, Any]:
        return self._facts

    def summary(self, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        names = "peak_rss_bytes", "libraries_rss_bytes", "libraries_code_bytes", "training_growth_bytes"
        return {name: _over_ranks(rank[name] for rank in ranks) for name in names} | {
            "memory_profile": _profile_of_all([rank["memory_profile"] for rank in ranks])
        }


def make(config: Config, session: Session, buffers: HaloBuffers) -> MemoryUse:
    """The plugin of every job."""
    return MemoryUse(config, session, buffers)


def _over_ranks(values: Iterable[float]) -> dict[str, float]:
    values = list(values)
    return {"max": max(values), "mean": sum(values) / len(values), "sum": sum(values)}


def _profile_of_all(profiles: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return {phase: {measured, accounted}} above the memory before the graph, or None without a profile.

    Each entry is {max, mean, min} over ranks.
    """
    known = [each for each in profiles if each is not None]
    if len(known) < len(profiles):
        return None
    phases = {}
    for phase in known[0]["phase_peak_bytes"]:
        phases[phase] = {"measured": spread([p["phase_peak_bytes"][phase] - p["base_bytes"] for p in known])}
        if phase in known[0]["account_bytes"]:
            phases[phase]["accounted"] = spread([sum(p["account_bytes"][phase].values()) for p in known])
    return {"base_bytes": spread([p["base_bytes"] for p in known]), "phases": phases}
