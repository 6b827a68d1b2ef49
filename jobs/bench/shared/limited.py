"""Commands that run in a control group with a memory limit, watched: seconds, memory of all their processes, disk.

The limit is real where control groups can be made (as root, version 1 or 2). Page cache counts in it, nothing is
swapped, and who needs more is killed. Elsewhere the memory is measured and nothing is limited.
"""

import contextlib
import itertools
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from shared.processes import descendants

# Root, the file of the limit, and that by which nothing is swapped.
GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.swappiness"),  # version 1
    (Path("/sys/fs/cgroup"), "memory.max", "memory.swap.max"),  # version 2
)
INTERVAL = 0.5  # seconds between two looks


@dataclass
class Measured:
    """The costs of a command. anonymous: bytes of all its processes together that no file backs, at the most."""

    seconds: float
    processor_seconds: float
    anonymous: int
    disk: int
    code: int


class Group:
    """A control group for memory. limit: bytes, None for none. `limited` is False without one."""

    def __init__(self, limit, name=None):
        self.path = None
        for root, file, swap in GROUPS:
            path = root / (name or f"hpcgnn-{os.getpid()}")
            if limit is None or not (root / "cgroup.procs").exists():
                continue
            with contextlib.suppress(OSError):
                path.mkdir(exist_ok=True)
                try:
                    (path / file).write_text(str(limit))
                    (path / swap).write_text("0")
                except OSError:
                    path.rmdir()
                    continue
                self.path = path
                break
        self.limited = self.path is not None

    def enter(self):
        """Put this process in it: called in a child, before its program starts."""
        if self.path is not None:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        """Remove it, once it is empty."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.rmdir()


def measure(command, group, folder, log, **environment):
    """`Measured` of a command, whose output goes to the file `log`. folder: whose disk space is watched."""
    peak = {"anonymous": 0, "disk": used(folder)}
    start, before = time.monotonic(), os.times()
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=group.enter,
            env={**os.environ, **environment},
        )

        looks = itertools.count(1)

        def look():
            peak["anonymous"] = max(peak["anonymous"], anonymous_of_all(process.pid))
            if next(looks) % 20 == 0:
                peak["disk"] = max(peak["disk"], used(folder))

        with watching(look, INTERVAL):
            try:
                code = process.wait()
            except BaseException:
                process.kill()
                raise
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    disk = max(peak["disk"], used(folder))
    return Measured(time.monotonic() - start, cpu, peak["anonymous"], disk, code)


@contextlib.contextmanager
def watching(look, interval):
    """Calls look() every `interval` seconds, in a thread, until the body ends."""
    over = threading.Event()

    def watch():
        while not over.wait(interval):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def used(folder):
    """Bytes on disk of the files of a folder."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # gone meanwhile
                total += os.stat(os.path.join(place, name), follow_symlinks=False).st_blocks * 512
    return total


def anonymous_of_all(pid):
    """`anonymous` of a process and its descendants together."""
    return sum(map(anonymous, [pid, *descendants(pid)]))


def anonymous(pid):
    """Bytes of a process that no file backs: its own, and memory shared between processes."""
    total = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) << 10
    return total
