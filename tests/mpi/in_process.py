"""Ranks as threads of one process: exactly one runs at a time, and hands on where it has to wait.

Tests of arithmetic, plans, bytes and schedules need ranks, and no processes. These ranks are deterministic, cost the
time of the arithmetic, and report a deadlock at once with the stacks of all ranks. The transport is as strict as MPI
allows a library to be. A message is copied as late as possible. A sent tensor that changes too soon, and a received one
that is read too soon, give wrong numbers. A send completes only when its receive is posted.
"""

import collections
import contextlib
import mmap
import sys
import threading
import traceback

import torch

from hpcgnn.comm.transport import MessageTransport, bytes_of

_OPS = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}


class Stopped(BaseException):
    """Another rank has failed, or all ranks wait for each other."""


class World:
    """The ranks of a job, their messages under way, and whose turn it is."""

    def __init__(self, size):
        self.size = size
        self._turns = [threading.Semaphore(0) for _ in range(size)]
        self._waiting = {}  # {rank: what it waits for}
        self._ended = set()
        self._threads = [None] * size
        self._failed = None
        self.sends = collections.defaultdict(collections.deque)
        self.receives = collections.defaultdict(collections.deque)
        self.contributions = collections.defaultdict(dict)
        self.communicators = [ThreadCommunicator(self, rank) for rank in range(size)]

    def run(self, function):
        """[function(rank)] of all ranks, each in a thread of its own. The error of the first that failed is raised."""
        results, self._failed, self._failure = [None] * self.size, None, None
        self._ended.clear()
        self._waiting.clear()

        def body(rank):
            self._turns[rank].acquire()
            try:
                if self._failed is None:
                    results[rank] = function(rank)
            except Stopped:
                pass
            except BaseException as error:
                if self._failed is None:
                    self._fail(rank, error)
            finally:
                self._ended.add(rank)
                self._hand_on(rank)

        self._threads = [threading.Thread(target=body, args=(rank,), name=f"rank {rank}") for rank in range(self.size)]
        for thread in self._threads:
            thread.start()
        self._turns[0].release()
        for thread in self._threads:
            thread.join()
        self.sends.clear()
        self.receives.clear()
        self.contributions.clear()
        for each in self.communicators:
            each.calls.clear()
        if self._failure is not None:
            raise self._failure
        return results

    def _fail(self, rank, error):
        self._failed, self._failure = rank, error
        if self.size > 1 and hasattr(error, "add_note"):
            error.add_note(f"on rank {rank} of {self.size}")

    def wait_until(self, rank, ready):
        """Let other ranks run until `ready()`."""
        while not ready():
            if self._failed is not None:
                raise Stopped
            self._waiting[rank] = ready
            self._hand_on(rank)
            self._turns[rank].acquire()
            if self._failed is not None:
                raise Stopped
        self._waiting.pop(rank, None)

    def _hand_on(self, rank):
        """Give the turn to the next rank that can go on."""
        others = [(rank + step) % self.size for step in range(1, self.size + 1)]
        alive = [other for other in others if other not in self._ended]
        for other in alive:
            if self._failed is not None or other not in self._waiting or self._waiting[other]():
                self._turns[other].release()
                return
        if alive:
            self._fail(rank, RuntimeError(f"deadlock: ranks {sorted(alive)} of {self.size} wait\n{self._stacks()}"))
            self._turns[alive[0]].release()

    def _stacks(self):
        frames = sys._current_frames()
        return "\n".join(
            f"--- rank {rank}\n" + "".join(traceback.format_stack(frames[thread.ident])[-12:])
            for rank, thread in enumerate(self._threads)
            if thread.ident in frames and rank not in self._ended
        )


class _Send:
    def __init__(self, data):
        self.data, self.receive = data, None

    def ready(self):
        return self.receive is not None

    def complete(self):
        self.receive.complete()


class _Receive:
    def __init__(self, data, where):
        self.data, self.send, self.through, self.where = data, None, False, where
        data.fill_(0xFF)  # what is read too soon is not a number

    def ready(self):
        return self.send is not None

    def complete(self):
        if not self.through:
            assert len(self.data) == len(self.send.data), f"{self.where}: other lengths at both ends"
            self.data.copy_(self.send.data)
            self.through = True


class _Collective:
    """A call of several ranks, complete when each has brought its value; `use` gets the values by rank."""

    def __init__(self, comm, value, use, channel=None, ranks=None):
        channel = comm.channel if channel is None else channel
        self._ranks = list(range(comm.size)) if ranks is None else ranks
        self._key = channel, comm.calls[channel], self._ranks[0]
        comm.calls[channel] += 1
        self._world = comm.world
        self._values = self._world.contributions[self._key]
        self._values[comm.rank] = value
        self._use = use

    def ready(self):
        return not self._values or len(self._values) == len(self._ranks)

    def complete(self):
        # All ranks are here, and have the values: the next call of this kind has another number.
        self._world.contributions.pop(self._key, None)
        if self._use is not None:
            self._use([self._values[rank] for rank in self._ranks])
            self._use = None
        self._values = {}


class ThreadCommunicator(MessageTransport):
    """A rank of a World, or of its first ranks."""

    def __init__(self, world, rank, ranks=None):
        super().__init__(rank, ranks or world.size)
        self.world, self.calls, self._node_memory = world, collections.Counter(), None
        self.channel = "" if ranks is None else f"first {ranks}"

    def first(self, ranks):
        return ThreadCommunicator(self.world, self.rank, ranks) if self.rank < ranks else None

    def _begin(self, outgoing, incoming, tag):
        world, receives, sends = self.world, [], []
        for rank, tensor in incoming:
            receives.append(_Receive(bytes_of(tensor), f"{rank} to {self.rank}"))
            world.receives[rank, self.rank, tag].append(receives[-1])
            self._match(rank, self.rank, tag)
        for rank, tensor in outgoing:
            sends.append(_Send(bytes_of(tensor)))
            world.sends[self.rank, rank, tag].append(sends[-1])
            self._match(self.rank, rank, tag)
        return receives, sends

    def _match(self, source, target, tag):
        sends, receives = self.world.sends[source, target, tag], self.world.receives[source, target, tag]
        while sends and receives:
            send, receive = sends.popleft(), receives.popleft()
            send.receive, receive.send = receive, send

    def _wait(self, requests):
        for request in requests:
            self.world.wait_until(self.rank, request.ready)
            request.complete()

    def _all(self, value, use, kind, size):
        self._collective([_Collective(self, value, use)], kind, size)

    def alltoall(self, numbers, kind):
        result = torch.empty_like(numbers)

        def use(values):
            torch.stack([each[self.rank] for each in values], out=result)

        self._all(numbers.clone(), use, kind, numbers.nbytes)
        return result

    def _combine(self, numbers, op, values):
        total = values[0].clone()
        for each in values[1:]:
            total = _OPS[op](total, each)
        numbers.copy_(total)

    def _reduce_(self, numbers, kind, op):
        self._all(numbers.clone(), lambda values: self._combine(numbers, op, values), kind, numbers.nbytes)

    def broadcast_(self, tensor, root, kind):
        if tensor.numel():
            mine = bytes_of(tensor)
            value = mine.clone() if self.rank == root else None
            self._all(value, lambda values: mine.copy_(values[root]), kind, tensor.nbytes)
        return tensor

    def _gather(self, data, sizes):
        result = []
        self._all(data.clone(), result.extend, "control", data.numel())
        assert [len(each) for each in result] == sizes
        return result

    def _barrier(self):
        return _Collective(self, None, None)

    def node_memory(self):
        if self._node_memory is None:
            self._node_memory = ThreadNodeMemory(self, list(range(self.size)))
        return self._node_memory


class ThreadNodeMemory:
    """The NodeMemory of some ranks, which have all memory in common."""

    def __init__(self, comm, ranks):
        self._comm, self.ranks, self.place = comm, ranks, ranks.index(comm.rank)

    def _all(self, value, use):
        self._comm._wait([_Collective(self._comm, value, use, ("node", self._comm.channel, *self.ranks), self.ranks)])

    def allocate(self, nbytes):
        result = []
        self._all(mmap.mmap(-1, max(1, nbytes)) if self.place == 0 else None, result.extend)
        return result[0]

    def gather(self, value):
        result = []
        self._all(self._comm.to_bytes(value), result.extend)
        return [self._comm.of_bytes(each) for each in result]

    def meet(self, number, kind, held):
        met = self.gather((number, list(held)))
        assert {each for each, _ in met} == {number}, f"the ranks of a node meet for {met}"
        self._comm.ledger.add(kind)
        return [any(of_ranks) for of_ranks in zip(*(each for _, each in met), strict=True)]

    def close(self):
        pass


@contextlib.contextmanager
def emulated_node(comm, node):
    """See nodes.emulated."""
    numbers = comm.allgather_object(node)
    before = comm._node_memory
    comm._node_memory = ThreadNodeMemory(comm, [rank for rank, each in enumerate(numbers) if each == node])
    try:
        yield comm._node_memory
    finally:
        comm._node_memory = before
