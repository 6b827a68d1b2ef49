"""Memory as the kernel reports it, the allocator policy, and the small step that makes the baseline fair.

The growth by training is the process's high-water mark during training minus its resident memory before. Some memory
does not depend on the graph (thread stacks, library buffers, autograd's machinery), and the baseline must contain it.
So the process first runs one training step on a graph of 256 nodes, and returns free heap to the system.
"""

import contextlib
import ctypes
import gc
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpcgnn.memory.resident import give_back_heap, status

if TYPE_CHECKING:
    from hpcgnn.memory.arena import Arena
    from hpcgnn.plugins.live_tensors import LiveTensors


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
MMAP_THRESHOLD, TRIM_THRESHOLD = 1 << 22, 1 << 24


def set_allocator_policy() -> bool:
    """Fix glibc's mmap threshold. Call this before the first import of torch.

    Large tensors then return to the system when freed. Tiles of some edges, 2 MiB each (ops/row_tiles.py, with few
    threads), stay on the heap: otherwise each tile would touch fresh pages. By default the threshold rises with every
    large freed block, and freed tensors stay on the heap. The function does not change other C libraries.

    Returns:
        whether the policy is in force.
    """
    try:
        libc = ctypes.CDLL(None)
        return bool(libc.mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD)) and bool(
            libc.mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD)
        )
    except (OSError, AttributeError):
        return False


def import_torch_without_meta_kernels() -> None:
    """Import torch without `torch._meta_registrations`, which only its compiler uses. Does nothing if torch is there.

    No rank compiles anything, and the module would take memory on each rank for the whole run. A later import of the
    module works, as that for a user's plugin (nn/plugin.py).
    """
    name = "torch._meta_registrations"
    if "torch" in sys.modules:
        return
    sys.modules[name] = types.ModuleType(name)
    try:
        import torch
    finally:
        del sys.modules[name]
    vars(torch).pop("_meta_registrations", None)


def trim_heap() -> None:
    """Return free heap to the system, after a garbage collection: a trainer is a reference cycle."""
    gc.collect()
    give_back_heap()


class PeakMemory:
    """The kernel's high-water mark of resident memory, which can be reset.

    overall: the peak since the process started. span: the peak since `begin_span`, whatever was reset in between.
    """

    def __init__(self) -> None:
        self.overall, self.span, self.was_reset = 0, 0, False

    def begin_span(self) -> bool:
        """Reset, and measure `span` from here. Returns whether the kernel allowed it."""
        allowed = self.reset()
        self.span = 0
        return allowed

    def reset(self) -> bool:
        """Start a new high-water mark at the present resident memory. Returns whether the kernel allowed it."""
        self.read()
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
            self.was_reset = True
        except OSError:
            self.was_reset = False
        return self.was_reset

    def read(self) -> int:
        """The high-water mark since the last reset, in bytes."""
        peak = status("VmHWM:")
        self.overall, self.span = max(self.overall, peak), max(self.span, peak)
        return peak


class MemoryProfile:
    """A watch of the phase clock that measures the memory of each phase, in bytes.

    Resetting and reading the mark takes 0.1 ms per phase, five times in an epoch with evaluation.

    Attributes:
        marks: {phase: the kernel's high-water mark}.
        taken: {phase: peak use of the arena}.
        made: {phase: peak memory of torch's operations outside the arena, in the phase's last run}.
        on_heap: {phase: the part of `made` on the allocator's heap}.
    """

    def __init__(self, peak: PeakMemory, arena: "Arena", live: "LiveTensors") -> None:
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
