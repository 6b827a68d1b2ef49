"""Tensors that are unused for a while: they stay in memory while there is room, and otherwise go to a scratch file.

A layer saves tensors from its forward pass for its backward pass. Early layers wait longest, so their tensors go to the
file first. On the way back, the next tensor is read while the layer above is at work. The step before shows how much
has to go. That much is written as soon as it is saved, while the next layers compute. In the first step, and for
growing needs, the rank waits until there is room.

Memory that went to the file is never read again. The owner of a saved tensor drops its reference, and gets the tensor
back, at a new place, from `SavedTensor.tensor()`.
"""

import time
import weakref
from concurrent.futures import Future
from typing import Any

import torch

from hpcgnn.extras.offload.scratch import ScratchFile
from hpcgnn.memory.arena import SMALL, Arena, SavedTensor, SavedTensorPool, rounded


class Store:
    """The memory of saved tensors, or its place in the scratch file.

    Attributes:
        storage: None if the bytes are in the file alone.
        outside: whether the storage is outside the arena.
        place, sums: offset in the file, and checksums.
        flight: the transfer under way, or None.
        writing: whether this transfer is a write.
        coming: whether it is, or will be, read.
        asked: whether its tensor was requested again.
    """

    def __init__(self, keeper: "DiskKeeper", storage: torch.UntypedStorage, outside: bool) -> None:
        self._keeper, self.outside = keeper, outside
        self.storage: torch.UntypedStorage | None = storage
        self.nbytes, self.size = storage.nbytes(), rounded(storage.nbytes())
        self.place: int | None = None
        self.sums: list[int] = []
        self.flight: Future[Any] | None = None
        self.writing = self.coming = self.asked = False

    def memory(self) -> torch.UntypedStorage:
        """In memory, for good."""
        return self._keeper.awake(self)

    def __del__(self) -> None:
        """Nobody keeps it any more. The collector may call this anywhere: see `ScratchFile.give_back`."""
        self._keeper.release(self)


class DiskKeeper(SavedTensorPool):
    """Keeps tensors such that an arena stays within a budget, if possible: others go to the scratch file.

    Attributes:
        waited: seconds of waiting for the scratch file.
    """

    def __init__(self, arena: Arena, budget: int, scratch: ScratchFile) -> None:
        self.budget, self.scratch, self._arena = budget, scratch, arena
        self.waited = 0.0
        self.most = self._expected = self._going = 0
        self._returning = False
        self._stores: list[weakref.ref[Store]] = []  # in the order in which they were kept
        self._by_address: weakref.WeakValueDictionary[int, Store] = weakref.WeakValueDictionary()
        self._flights: list[Store] = []

    @property
    def outside(self) -> int:
        """Bytes in memory that are not of the arena."""
        return sum(store.nbytes for store in self._living() if store.outside and store.storage is not None)

    @property
    def away(self) -> int:
        """Bytes that lie in the file, and not in memory."""
        return sum(store.nbytes for store in self._living() if store.storage is None)

    def _living(self) -> list[Store]:
        return [store for each in self._stores if (store := each()) is not None]

    def begin(self) -> None:
        """Begin a step, which will need as much as the one before."""
        for store in list(self._flights):  # of what was let go before it was written
            self._land(store)
        self._expected, self.most, self._going, self._returning = self.most, 0, 0, False

    def keep(self, tensor: torch.Tensor) -> SavedTensor:
        storage = tensor.untyped_storage()
        if storage.nbytes() < SMALL:
            return SavedTensor(tensor)
        store = self._by_address.get(storage.data_ptr())
        if store is None:
            outside = not self._arena.holds(tensor)
            store = Store(self, storage, outside)
            self._by_address[storage.data_ptr()] = store
            self._stores = [each for each in self._stores if each() is not None]
            self._stores.append(weakref.ref(store))
            while outside and self.make_room(0):
                pass
            self._write_behind()
        return SavedTensor(tensor, store.memory)

    def gone(self, address: int) -> None:
        self._by_address.pop(address, None)

    def note(self, taken: int) -> None:
        self.settle()
        self.most = max(self.most, taken + self.outside + self.away)
        if self._returning:
            self._read_ahead()

    def make_room(self, size: int) -> bool:
        return not self._may_grow(size) and self.free_some()

    def _may_grow(self, size: int) -> bool:
        """Whether the budget has room for a new piece of `size` bytes in place of the pieces that are free."""
        unused = self._arena.unused * (size > 0)
        return self._arena.nbytes - unused + self.outside + size <= self.budget

    def free_some(self) -> bool:
        """Wait until more saved bytes are out of memory; return False if no more can go."""
        if self._drop_read_ahead():
            return True
        begun = time.perf_counter()
        store = next((each for each in self._flights if each.writing), None) or self._write_oldest()
        if store is None:
            return False
        self._land(store)
        self.waited += time.perf_counter() - begun
        return True

    def awake(self, store: Store) -> torch.UntypedStorage:
        """The memory of a store, read again if it was out."""
        begun = time.perf_counter()
        self._returning = store.asked = True
        if store.storage is None:
            self._read(store)
        if store.flight is not None:
            self._land(store)
        self.waited += time.perf_counter() - begun
        self.release(store)
        self._read_ahead()
        assert store.storage is not None, "it was in memory or has been read"
        return store.storage

    def settle(self) -> None:
        """Let go of memory that has been written meanwhile."""
        for store in [each for each in self._flights if each.flight is not None and each.flight.done()]:
            self._land(store)

    def _write_behind(self) -> None:
        """Write the excess of the step before, and one more store: active tensors must not wait."""
        surplus = self._expected - self.budget
        while surplus > 0 and self._going < surplus + self._largest() and self._write_oldest() is not None:
            pass

    def _largest(self) -> int:
        return max((store.nbytes for store in self._living()), default=0)

    def _write_oldest(self) -> Store | None:
        """Begin to write the oldest store that is in memory alone."""
        for store in self._living():
            if store.storage is not None and store.place is None and not store.asked:
                store.place = self.scratch.place(store.size)
                store.flight = self.scratch.write(store.storage, store.nbytes, store.place, not store.outside)
                store.writing = True
                self._flights.append(store)
                self._going += store.nbytes
                return store
        return None

    def _read_ahead(self) -> None:
        """Begin to read the newest store in the file, if there is room for it and for an equally large result."""
        for store in reversed(self._living()):
            if store.asked or (store.storage is not None and not store.coming):
                continue
            if not store.coming and (self._arena.fits(2 * store.size) or self._may_grow(2 * store.size)):
                self._read(store)
            return

    def _drop_read_ahead(self) -> bool:
        """Let go of a store that was read too early; it is in the file still. Whether there was one."""
        for store in self._living():
            if store.coming and not store.asked and store.storage is not None:
                if store.flight is not None:
                    self._land(store)
                store.storage, store.coming = None, False
                return True
        return False

    def _read(self, store: Store) -> None:
        assert store.place is not None, "a store out of memory has its place in the file"
        store.coming = True  # new memory may take others out, or bring them in
        store.storage = self._arena.pages(store.size).untyped_storage()
        store.outside = False
        store.writing = False
        store.flight = self.scratch.fill(store.storage, store.size, store.place, store.sums)
        self._flights.append(store)

    def _land(self, store: Store) -> None:
        """Wait for a store's transfer. A written store leaves memory, unless its tensor was requested."""
        flight, store.flight = store.flight, None
        self._flights.remove(store)
        assert flight is not None and store.storage is not None, "a transfer has memory"
        store.sums = self.scratch.result(flight) or store.sums
        if not store.writing or store.asked:
            return
        if store.outside:  # nobody tells when that is gone
            self._by_address.pop(store.storage.data_ptr(), None)
        store.storage = None

    def release(self, store: Store) -> None:
        """Its place in the file is not needed any more."""
        if store.place is not None:
            self.scratch.give_back(store.place, store.size)
            store.place, store.sums = None, []
