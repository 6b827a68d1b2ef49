"""What torch's own operations hold at the height of a step, for the account of memory.

Large tensors that come from the arena are counted there. Models that are written with torch's operations alone (those
on the general rule, those of a plugin) make theirs outside of it, and torch has no counter of what is alive on a CPU.
So every operation is looked at as it is done, in runs that profile memory and in no others.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from hpcgnn.plugins.memory_profile import MMAP_THRESHOLD


class Onlooker(TorchDispatchMode):
    """A mode that looks at torch's operations as they are done."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch asks its modes. Else the first operation loads its compiler: 70 MiB in the middle of what is
        measured.
        """
        return False


class LiveTensors(Onlooker):
    """While it is entered: counts the tensors that operations make, until they go.

    height: the most bytes of them that were alive together since `begin`. The arena keeps its memory, so they come on
    top of all of it, whatever is taken of it at that moment. on_heap: the same, of those that the allocator has on the
    heap (see memory_profile.py).
    """

    def __init__(self) -> None:
        super().__init__()
        self.height = self.on_heap = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def begin(self, afresh: bool) -> None:
        """Start a phase. afresh: forget the tensors made before; what lasts from step to step is counted by others."""
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
        given = {_storage(x)._cdata for x in tensors_of((args, kwargs))}
        for made in tensors_of(result):
            storage = _storage(made)
            if storage._cdata not in given:  # else it is a view, or was written to
                self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._look()
        return result

    def _look(self) -> None:
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        sizes = [size for _, size in self._alive.values()]
        self.height = max(self.height, sum(sizes))
        self.on_heap = max(self.on_heap, sum(size for size in sizes if size < MMAP_THRESHOLD))


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()


def tensors_of(thing: Any) -> Iterator[torch.Tensor]:
    """All tensors in what an operation is given, or gives."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            yield from tensors_of(part)
    elif isinstance(thing, dict):
        yield from tensors_of(list(thing.values()))
