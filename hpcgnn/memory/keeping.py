"""Tensors that nobody reads for a while: they stay in memory while there is room, and else lie in a scratch file.

What a layer keeps from its forward pass for its backward pass is cold in between, and the longer the earlier the layer
is. So the oldest goes to the scratch file first. On the way back the one that is needed next is read while the layer
above is at work. How much has to go is known from the step before, and is then written as soon as it is kept, behind
the work of the next layers; in the first step, and wherever more is wanted than before, the rank waits until there is
room.

Nothing is read from memory that went: whoever keeps a tensor lets go of it, and gets it back, at a new place, from
`Kept.tensor()`.
"""

import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch

from hpcgnn.memory.scratch import Scratch, rounded

#: make(bytes) -> the storage of so many bytes of new memory, at a multiple of GRAIN.
Make = Callable[[int], torch.UntypedStorage]
# Smaller ones stay in memory.
SMALL = 1 << 18


class Kept:
    """A tensor for later."""

    def __init__(self, tensor: torch.Tensor, store: "Store | None" = None) -> None:
        self._tensor = tensor if store is None else None
        self._store = store
        self._like = tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def tensor(self) -> torch.Tensor:
        """It, in memory. While any tensor with the same memory is kept, all get the same memory back."""
        if self._store is None:
            assert self._tensor is not None, "what has no store stays in memory"
            return self._tensor
        dtype, offset, shape, stride = self._like
        return torch.empty(0, dtype=dtype).set_(self._store.memory(), offset, shape, stride)


class Store:
    """The memory of kept tensors, or where it lies in the scratch file meanwhile.

    storage: None where it is in the file alone; outside: whether it is not of the arena. place, sums: in the file.
    flight: what is under way; writing: whether that writes. coming: whether it is, or will be, read; asked: whether
    somebody has asked for it again.
    """

    def __init__(self, keeper: "Keeper", storage: torch.UntypedStorage, outside: bool) -> None:
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
        self._keeper.forget(self)


class Keeper:
    """Keeps tensors within a budget. room(bytes): whether so many more can be had of the arena now without more than
    the budget; make: see Make. waited: seconds that the rank stood still for the scratch file.
    """

    def __init__(self, budget: int, scratch: Scratch, room: Callable[[int], bool], make: Make) -> None:
        self.budget, self.scratch, self._room, self._make = budget, scratch, room, make
        self.outside = 0  # bytes in memory that are not of the arena
        self.away = 0  # bytes that lie in the file, and not in memory
        self.waited = 0.0
        self.most = self._expected = self._going = 0
        self._returning = False
        self._stores: list[weakref.ref[Store]] = []  # in the order in which they were kept
        self._by_address: weakref.WeakValueDictionary[int, Store] = weakref.WeakValueDictionary()
        self._flights: list[Store] = []

    def begin(self) -> None:
        """A step begins, which will take what the one before took."""
        for store in list(self._flights):  # of what was let go before it was written
            self._land(store)
        self._expected, self.most, self._going, self._returning = self.most, 0, 0, False

    def keep(self, tensor: torch.Tensor, held: Callable[[torch.Tensor], bool]) -> Kept:
        """Keep a tensor, which nobody writes to until it is asked for. held: whether memory is of the arena."""
        storage = tensor.untyped_storage()
        if storage.nbytes() < SMALL:
            return Kept(tensor)
        store = self._by_address.get(storage.data_ptr())
        if store is None:
            outside = not held(tensor)
            store = Store(self, storage, outside)
            self.outside += store.nbytes if outside else 0
            self._by_address[storage.data_ptr()] = store
            self._stores = [each for each in self._stores if each() is not None]
            self._stores.append(weakref.ref(store))
            while outside and not self._room(0) and self.make_room():
                pass
            self._write_behind()
        return Kept(tensor, store)

    def gone(self, address: int) -> None:
        """Memory of the arena at this address is free again."""
        self._by_address.pop(address, None)

    def note(self, taken: int) -> None:
        """taken: bytes in use of the arena."""
        self.settle()
        self.most = max(self.most, taken + self.outside + self.away)
        if self._returning:
            self._read_ahead()

    def make_room(self) -> bool:
        """Wait until some more of what is kept is out of memory; False if there is nothing that could go any more."""
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
        self._release(store)
        self._read_ahead()
        assert store.storage is not None, "it was in memory or has been read"
        return store.storage

    def forget(self, store: Store) -> None:
        """Nobody keeps it any more."""
        if store.storage is None:
            self.away -= store.nbytes
        elif store.outside:
            self.outside -= store.nbytes
        self._release(store)

    def settle(self) -> None:
        """Let go of memory that has been written meanwhile."""
        for store in [each for each in self._flights if each.flight is not None and each.flight.done()]:
            self._land(store)

    def _write_behind(self) -> None:
        """Write as much as the step before had too much, and a store more: what is in use must not wait."""
        surplus = self._expected - self.budget
        while surplus > 0 and self._going < surplus + self._largest() and self._write_oldest() is not None:
            pass

    def _largest(self) -> int:
        return max((store.nbytes for each in self._stores if (store := each()) is not None), default=0)

    def _write_oldest(self) -> Store | None:
        """Begin to write the oldest store that is in memory alone."""
        for each in self._stores:
            store = each()
            if store is not None and store.storage is not None and store.place is None and not store.asked:
                store.place = self.scratch.place(store.size)
                store.flight = self.scratch.write(store.storage, store.nbytes, store.place, not store.outside)
                store.writing = True
                self._flights.append(store)
                self._going += store.nbytes
                return store
        return None

    def _read_ahead(self) -> None:
        """Begin to read the newest store that is out, if there is room for it and for a result as large besides."""
        for each in reversed(self._stores):
            store = each()
            if store is None or store.asked or (store.storage is not None and not store.coming):
                continue
            if not store.coming and self._room(2 * store.size):
                self._read(store)
            return

    def _drop_read_ahead(self) -> bool:
        """Let go of a store that was read too early; it is in the file still. Whether there was one."""
        for each in self._stores:
            store = each()
            if store is not None and store.coming and not store.asked and store.storage is not None:
                if store.flight is not None:
                    self._land(store)
                store.storage, store.coming = None, False
                self.away += store.nbytes
                return True
        return False

    def _read(self, store: Store) -> None:
        assert store.place is not None, "what is out of memory has its place in the file"
        store.coming = True  # new memory may take others out, or bring them in
        store.storage = self._make(store.size)
        store.outside = False
        self.away -= store.nbytes
        store.writing = False
        store.flight = self.scratch.fill(store.storage, store.size, store.place, store.sums)
        self._flights.append(store)

    def _land(self, store: Store) -> None:
        """Wait for what is under way with a store. What was written goes, unless somebody asks for it."""
        flight, store.flight = store.flight, None
        self._flights.remove(store)
        assert flight is not None and store.storage is not None, "what is under way has memory"
        store.sums = self.scratch.result(flight) or store.sums
        if not store.writing or store.asked:
            return
        if store.outside:  # nobody tells when that is gone
            self._by_address.pop(store.storage.data_ptr(), None)
        store.storage = None
        self.away += store.nbytes
        if store.outside:
            self.outside -= store.nbytes

    def _release(self, store: Store) -> None:
        """Its place in the file is not needed any more."""
        if store.place is not None:
            self.scratch.give_back(store.place, store.size)
            store.place, store.sums = None, []
