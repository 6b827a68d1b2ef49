"""A helper thread that lets messages advance while the rank computes."""

import threading
import time
from collections.abc import Callable
from typing import Any

from hpcgnn import cores


class Progress(threading.Thread):
    """Tests pending lists of requests until they are complete or released, and sleeps `pause` seconds between.

    test(requests) -> whether all of a list are complete; it must release the interpreter's lock.
    """

    def __init__(self, test: Callable[[list[Any]], bool], pause: float) -> None:
        super().__init__(name="hpcgnn-progress", daemon=True)
        self._test, self.pause = test, pause
        self.lock = threading.Lock()
        self.awake = threading.Event()
        self.pending: list[list[Any]] = []
        self.stopping = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        cores.use_all()
        try:
            while self.awake.wait() and not self.stopping:
                with self.lock:
                    self.pending = [requests for requests in self.pending if not self._test(requests)]
                    if not self.pending and not self.stopping:
                        self.awake.clear()
                time.sleep(self.pause)
        except BaseException as error:  # shown by the rank that waits, which then ends the job
            self.failure = error

    def watch(self, requests: list[Any]) -> None:
        if not self.is_alive():
            self.start()
        with self.lock:
            self.pending.append(requests)
            if not self.awake.is_set():
                self.awake.set()

    def arrived(self, requests: list[Any]) -> bool:
        """Test whether these requests are complete. Some may be watched: two threads must not test at a time."""
        with self.lock:
            return self._test(requests)

    def release(self, requests: list[Any]) -> None:
        """Take requests back: MPI forbids two threads to complete the same request."""
        with self.lock:
            self.pending = [other for other in self.pending if other is not requests]
        if self.failure is not None:
            raise RuntimeError("the thread that advances messages failed") from self.failure

    def stop(self) -> None:
        with self.lock:
            self.stopping = True
            self.awake.set()
        if self.is_alive():
            self.join()
