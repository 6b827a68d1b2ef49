"""A communicator whose messages take time: the double of a slow network. No part of the program.

Every rank has one outgoing link. A message that is sent waits for those before it, then takes latency + bytes / rate,
and is only then handed to MPI: until then it cannot arrive. A thread that sleeps does this, so the link takes no
processor time, as network hardware takes none.
"""

import queue
import threading
import time

from hpcgnn.comm.communicator import Communicator, Exchange


class SlowLink(Communicator):
    """The verbs of `inner`, a Communicator, with messages over a slow link; collectives are as fast as they were.

    rate: bytes per second, or None for messages that go at once; latency: seconds. Both may be set between exchanges.
    waited: seconds spent waiting for messages; sending: seconds that the messages of this rank took on the link, since
    `reset`.
    """

    def __init__(self, inner, rate=None, latency=0.0):
        self._inner, self.rate, self.latency = inner, rate, latency
        self.rank, self.size, self.ledger, self.heartbeat = inner.rank, inner.size, inner.ledger, inner.heartbeat
        self._queue = queue.SimpleQueue()
        threading.Thread(target=self._run, name="slow-link", daemon=True).start()
        self.reset()

    def reset(self):
        """Count anew."""
        self.waited = self.sending = 0.0

    def exchange(self, outgoing, incoming, kind):
        if self.rate is None:
            return _OnLink(self, [], self._inner.exchange(outgoing, incoming, kind))
        sent = []
        for rank, tensor in outgoing:
            seconds = self.latency + tensor.nbytes / self.rate
            self.sending += seconds
            sent.append(_Message(time.perf_counter(), seconds, self._sender(rank, tensor, kind)))
        receiving = self._inner.exchange([], incoming, kind)
        for message in sent:
            self._queue.put(message)
        return _OnLink(self, sent, receiving)

    def _sender(self, rank, tensor, kind):
        return lambda: self._inner.exchange([(rank, tensor)], [], kind)

    def _run(self):
        free = 0.0
        while True:
            message = self._queue.get()
            free = max(free, message.posted) + message.seconds
            time.sleep(max(0.0, free - time.perf_counter()))
            message.exchange = message.send()
            message.exchange.progress()
            message.handed_over.set()

    def alltoall(self, numbers, kind):
        return self._inner.alltoall(numbers, kind)

    def allreduce_(self, tensor, kind, op="sum"):
        return self._inner.allreduce_(tensor, kind, op)

    def allgather_object(self, value):
        return self._inner.allgather_object(value)

    def gather_object(self, value, root=0):
        return self._inner.gather_object(value, root)

    def broadcast_(self, tensor, root, kind):
        return self._inner.broadcast_(tensor, root, kind)


class _OnLink(Exchange):
    """Messages that go over the link, and those that come, which another rank's link delays."""

    def __init__(self, link, sent, inner):
        self._link, self._sent, self._inner = link, sent, inner

    def progress(self):
        self._inner.progress()

    def arrived(self):
        raise NotImplementedError("nothing that is measured here asks for it")

    def finish_receiving(self):
        start = time.perf_counter()
        self._inner.finish_receiving()
        self._link.waited += time.perf_counter() - start

    def finish_sending(self):
        start = time.perf_counter()
        self._inner.finish_sending()
        for message in self._sent:
            message.handed_over.wait()
            message.exchange.finish()
        self._sent = []
        self._link.waited += time.perf_counter() - start


class _Message:
    """One that is on the link, and handed over to MPI when it is through."""

    def __init__(self, posted, seconds, send):
        self.posted, self.seconds, self.send = posted, seconds, send
        self.handed_over, self.exchange = threading.Event(), None
