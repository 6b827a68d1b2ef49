"""A thread writes the epochs' records, so that no rank waits for a slow moment of the file system.

All ranks wait for rank 0 in the next epoch, so a delay of rank 0 delays the job. The writer keeps an error of the
thread. The epoch loop checks for it with every epoch, and before a checkpoint.
"""

import os
import queue
import threading
from pathlib import Path
from typing import Any

from hpcgnn.records import to_json

# Records that may wait for the file. A file system that stands still for longer is waited for.
_MOST_WAITING = 1000


class RecordWriter:
    """Appends records to a file, a line of JSON each. Raises OSError if it cannot be opened.

    failed: whether a record could not be written; none is from then on.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8")
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(_MOST_WAITING)
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def append(self, record: dict[str, Any]) -> None:
        """Have a record written soon; it must not change any more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="hpcgnn-records", daemon=True)
            self._thread.start()
        self._waiting.put(record)

    def _write(self) -> None:
        while (record := self._waiting.get()) is not None:
            try:
                if not self.failed:
                    self._file.write(to_json(record) + "\n")
                    self._file.flush()
            except Exception as error:  # raised by `settle`
                self._failure = error
            self._waiting.task_done()

    def settle(self) -> None:
        """Wait until all records are in the file. Raises the thread's error."""
        self._waiting.join()
        if self._failure is not None:
            raise self._failure

    def flush_to_disk(self) -> None:
        """`settle`, and make sure that a crash of the node does not take them away again. Raises OSError."""
        self.settle()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write the waiting records, and close the file."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
        self._file.close()
