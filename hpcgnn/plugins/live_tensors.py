"""The memory that torch's own operations hold at their peak, for the memory account.

The arena counts its own large tensors. Models made of torch's operations alone (the general operator, plugins) allocate
outside the arena, and torch does not count live CPU tensors. So this mode watches every operation, in runs that profile
memory and in no others.
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
        """Return True: torch asks its modes. Otherwise the first operation loads torch's compiler, 70 MiB in the middle
        of the measurement.
        """
        return False


class LiveTensors(Onlooker):
    """A context that counts the tensors of torch's operations until they are freed.

    Attributes:
        height: peak bytes of live tensors since `begin`. The arena keeps its memory, so these bytes add to all of it.
        on_heap: the peak of the part that the allocator keeps on the heap (see memory_profile.py).
    """

    def __init__(self) -> None:
        super().__init__()
        self.height = self.on_heap = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

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
    """Yield all tensors among an operation's arguments or results."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            yield from tensors_of(part)
    elif isinstance(thing, dict):
        yield from tensors_of(list(thing.values()))
