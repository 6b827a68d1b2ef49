"""The memory that torch's own operations hold at their peak, for the memory account.

The arena counts its own large tensors. Models made of torch's operations alone (the general operator, plugins) allocate
outside the arena, and torch does not count live CPU tensors. So this mode watches every operation, in runs that profile
memory and in no others.
"""

from collections.abc import Callable
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
            self._most_on_heap += size if size < MMAP_THRESHOLD else 0
        if self._most > self.height or self._most_on_heap > self.on_heap:  # else no peak can have grown
            self._look()
        return result

    def _look(self) -> None:
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        sizes = [size for _, size in self._alive.values()]
        self._most, self._most_on_heap = sum(sizes), sum(size for size in sizes if size < MMAP_THRESHOLD)
        self.height = max(self.height, self._most)
        self.on_heap = max(self.on_heap, self._most_on_heap)


def new_storages(given: Any, made: Any) -> list[tuple[torch.Tensor, torch.UntypedStorage]]:
    """Return the tensors of a result that are no views of an operation's arguments, with their storages, each once."""
    tensors = tensors_of(made)
    if not tensors:
        return []
    known = {each.untyped_storage()._cdata for each in tensors_of(given)}
    found = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            known.add(storage._cdata)
            found.append((tensor, storage))
    return found


def tensors_of(thing: Any) -> list[torch.Tensor]:
    """Return all tensors among an operation's arguments or results."""
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, dict):
        thing = list(thing.values())
    if not isinstance(thing, (list, tuple)):
        return []
    found = []
    for part in thing:
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif isinstance(part, (list, tuple, dict)):
            found += tensors_of(part)
    return found
