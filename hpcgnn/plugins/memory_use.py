"""The memory of a rank before the graph, before training and at its peak; with `--profile-memory` also by phase.

The growth by training is the process's high-water mark during training minus its resident memory before. Some memory
does not depend on the graph (thread stacks, library buffers, autograd's machinery), and the baseline must contain it.
So the process first runs one training step on a graph of 251 nodes, and returns free heap to the system.

The arena counts its own large tensors. Models made of torch's operations alone (the general operator, plugins) allocate
outside the arena, and torch does not count live CPU tensors. So a profile watches every operation.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.hooks import Plugin
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.memory.arena import Arena
from hpcgnn.memory.resident import (
    PeakMemory,
    common_bytes,
    heap_bytes,
    malloc_thresholds,
    resident_bytes,
    shared_bytes,
    trim_heap,
)
from hpcgnn.plugins.account import make_account
from hpcgnn.records import spread

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

log = logging.getLogger("hpcgnn")


class MemoryUse(Plugin):
    """Measures a rank from the moment before its share of the graph is read to the last epoch."""

    def __init__(self, config: Config, buffers: HaloBuffers) -> None:
        trim_heap()
        self._peak = PeakMemory()
        self._libraries, self._shared, self._code = resident_bytes(), shared_bytes(), common_bytes()
        self._heap = heap_bytes()
        self._baseline, self._facts = 0, dict[str, Any]()
        profiled = config.run.profile_memory
        self._profile = MemoryProfile(self._peak, buffers.arena, LiveTensors()) if profiled else None

    def watch(self, phase: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext() if self._profile is None else self._profile(phase)

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
            mpi, code = max(0, shared_bytes() - self._shared - windows), max(0, common_bytes() - self._code)
            now = heap_bytes()
            heap = [max(0, each - before) for each, before in zip(now, self._heap, strict=True)] if any(now) else []
            account, marks = make_account(trainer, trainer.local, self._profile, mpi, code, *heap), self._profile.marks
            self._facts["memory_profile"] = {
                "base_bytes": self._libraries,
                "phase_peak_bytes": {phase: mark - foreign * (phase in account) for phase, mark in marks.items()},
                "account_bytes": account,
            }

    def record(self) -> dict[str, Any]:
        return self._facts

    def summary(self, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        names = "peak_rss_bytes", "libraries_rss_bytes", "libraries_code_bytes", "training_growth_bytes"
        return {name: spread([rank[name] for rank in ranks]) for name in names}


def make(config: Config, session: Session, buffers: HaloBuffers) -> MemoryUse:
    """The plugin of every job."""
    return MemoryUse(config, buffers)


class MemoryProfile:
    """A watch of the phase clock that measures the memory of each phase, in bytes.

    Resetting and reading the mark takes 0.1 ms per phase, five times in an epoch with evaluation.

    Attributes:
        marks: {phase: the kernel's high-water mark}.
        taken: {phase: peak use of the arena}.
        made: {phase: peak memory of torch's operations outside the arena, in the phase's last run}.
        on_heap: {phase: the part of `made` on the allocator's heap}.
    """

    def __init__(self, peak: PeakMemory, arena: Arena, live: "LiveTensors") -> None:
        self._peak, self._arena, self._live = peak, arena, live
        self.marks: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self.made: dict[str, int] = {}
        self.on_heap: dict[str, int] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self._peak.reset()
        self._arena.mark()
        self._live.begin(afresh=phase in ("forward", "evaluation"))
        try:
            with self._live:
                yield
        finally:
            self.marks[phase] = max(self.marks.get(phase, 0), self._peak.read())
            self.taken[phase] = max(self.taken.get(phase, 0), self._arena.most)
            self.made[phase] = self._live.height  # the first run of a phase also makes lasting tensors
            self.on_heap[phase] = self._live.on_heap


class Onlooker(TorchDispatchMode):
    """A mode that looks at torch's operations as they are done."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return True: torch asks its modes. Otherwise the first operation loads torch's compiler, 70 MiB in the middle
        of the measurement.
        """
        return False


class LiveTensors(Onlooker):
    """A context that counts the tensors of torch's operations until they are freed.

    Attributes:
        height: peak bytes of live tensors since `begin`. The arena keeps its memory, so these bytes add to all of it.
        on_heap: the peak of the part that the allocator keeps on the heap (see memory/resident.py).
    """

    def __init__(self) -> None:
        super().__init__()
        self.height = self.on_heap = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        # At least the bytes that are alive now: of all tensors that were when somebody last looked, and of later ones.
        self._most = self._most_on_heap = 0

    def begin(self, afresh: bool) -> None:
        """Start a phase.

        Args:
            afresh: forget earlier tensors; the account counts lasting ones elsewhere.
        """
        if afresh:
            self._alive.clear()
        self.height = self.on_heap = 0
        self._look()

    def __torch_dispatch__(
        self,
        operation: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        for _, storage in new_storages((args, kwargs), result):
            size = storage.nbytes()
            self._alive[storage._cdata] = StorageWeakRef(storage), size
            self._most += size
            self._most_on_heap += size if size < malloc_thresholds().mapping else 0
        if self._most > self.height or self._most_on_heap > self.on_heap:  # else no peak can have grown
            self._look()
        return result

    def _look(self) -> None:
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        sizes = [size for _, size in self._alive.values()]
        self._most, self._most_on_heap = sum(sizes), sum(size for size in sizes if size < malloc_thresholds().mapping)
        self.height = max(self.height, self._most)
        self.on_heap = max(self.on_heap, self._most_on_heap)


def new_storages(given: Any, made: Any) -> list[tuple[torch.Tensor, torch.UntypedStorage]]:
    """Return the tensors of a result that are no views of an operation's arguments, with their storages, each once."""
    known, found = {each.untyped_storage()._cdata for each in tensors_of(given)}, []
    for tensor in tensors_of(made):
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            known.add(storage._cdata)
            found.append((tensor, storage))
    return found


def tensors_of(thing: Any) -> list[torch.Tensor]:
    """Return all tensors among an operation's arguments or results."""
    return [each for each in tree_leaves(thing) if isinstance(each, torch.Tensor)]
