"""A communicator whose messages take time: the double that overlap is measured with. No part of the program.

Every rank has one outgoing link. A message that is sent waits for those before it, then takes latency + bytes / rate,
and is only then handed to MPI: until then it cannot arrive. A thread that sleeps does this, so the link takes no
processor time, as network hardware takes none.
"""

import queue
import threading
import time

from hpcgnn.comm.communicator import Communicator


class SlowLink(Communicator):
    """The verbs of `inner`, a Communicator, with messages over a slow link; collectives are as fast as they were.

    rate: bytes per second, or None for messages that go at once; latency: seconds. Both may be set between exchanges.
    waited: seconds spent in `wait`; sending: seconds that the messages of this rank took on the link, since `reset`.
    """

    def __init__(self, inner, rate=None, latency=0.0):
        self._inner, self.rate, self.latency = inner, rate, latency
        self.rank, self.size, self.ledger, self.pulse = inner.rank, inner.size, inner.ledger, inner.pulse
        self._queue = queue.SimpleQueue()
        threading.Thread(target=self._run, name="slow-link", daemon=True).start()
        self.reset()

    def reset(self):
        """Count anew."""
        self.waited = self.sending = 0.0

    def isend(self, tensor, dest, tag, kind):
        if self.rate is None:
            return self._inner.isend(tensor, dest, tag, kind)
        seconds = self.latency + tensor.nbytes / self.rate
        self.sending += seconds
        message = _Message(time.perf_counter(), seconds, lambda: self._inner.isend(tensor, dest, tag, kind))
        self._queue.put(message)
        return message

    def irecv(self, tensor, source, tag, kind):
        return self._inner.irecv(tensor, source, tag, kind)

    def progress(self, requests):
        if not _on_link(requests):
            self._inner.progress(requests)  # the very list: that is how the communicator knows it again

    def wait(self, requests, kind):
        start = time.perf_counter()
        for message in requests if _on_link(requests) else []:
            message.handed_over.wait()
            self._inner.wait(message.request, kind)
        if not _on_link(requests):
            self._inner.wait(requests, kind)
        self.waited += time.perf_counter() - start

    def _run(self):
        free = 0.0
        while True:
            message = self._queue.get()
            free = max(free, message.posted) + message.seconds
            time.sleep(max(0.0, free - time.perf_counter()))
            message.request = [message.send()]
            self._inner.progress(message.request)
            message.handed_over.set()

    def arrived(self, requests):
        raise NotImplementedError("nothing that is measured here asks for it")

    def allreduce_(self, tensor, kind, op="sum"):
        return self._inner.allreduce_(tensor, kind, op)

    def allgather_object(self, value):
        return self._inner.allgather_object(value)

    def broadcast_object(self, value, root=0):
        return self._inner.broadcast_object(value, root)

    def broadcast_(self, tensor, root, kind):
        return self._inner.broadcast_(tensor, root, kind)


def _on_link(requests):
    """Whether these are messages on the link; lists of requests are of one kind."""
    return any(isinstance(request, _Message) for request in requests)


class _Message:
    """One that is on the link: a request that is finished when the message is handed over and MPI has sent it."""

    def __init__(self, posted, seconds, send):
        self.posted, self.seconds, self.send = posted, seconds, send
        self.handed_over, self.request = threading.Event(), None
