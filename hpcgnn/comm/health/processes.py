"""Which processes of this node have ended: asked of the kernel by a descriptor for each, where it gives them."""

import os
import select
from pathlib import Path


def start_time(pid: int) -> int | None:
    """When a process of this node started, in clock ticks since the machine did; None if it is no more (or a
    zombie).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


class ProcessWatch:
    """Watches processes until it is closed.

    One call to the kernel covers all of them (pidfd_open, Linux 5.3). Processes without a descriptor are looked up in
    /proc, each time.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._descriptors: dict[int, int] = {}
        self._in_proc: dict[int, tuple[int, int]] = {}
        self._watched: set[int] = set()
        self._ended: set[int] = set()

    def watch(self, key: int, pid: int, started: int) -> None:
        """Watch a process, if `key` is not watched yet. started: as of `start_time`, since another process may have its
        number by now."""
        if key in self._watched:
            return
        self._watched.add(key)
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError):  # an older kernel, no descriptor left, a sandbox, or no such process
            self._in_proc[key] = pid, started
            return
        self._descriptors[descriptor] = key
        self._poll.register(descriptor, select.EPOLLIN)
        if start_time(pid) != started:
            self._ended.add(key)

    def ended(self) -> set[int]:
        """Return the keys of the processes that have ended."""
        for descriptor, _ in self._poll.poll(0):
            self._ended.add(self._descriptors.pop(descriptor))
            self._poll.unregister(descriptor)
            os.close(descriptor)
        for key in [key for key, (pid, started) in self._in_proc.items() if start_time(pid) != started]:
            del self._in_proc[key]
            self._ended.add(key)
        return self._ended

    def close(self) -> None:
        """Give the descriptors back."""
        self._poll.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
