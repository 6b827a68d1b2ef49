"""The run directory: all files of a run, each complete or absent, written by rank 0 alone.

config.toml     the resolved configuration            summary.json   the result, with provenance
plugin.py       a copy of the file of --plugin        log.txt        all messages, with times
metrics.jsonl   one record per epoch                  curves.png     loss; metrics over epochs, seconds, bytes
ranks.jsonl     one record per rank                   trace/         the ranks' activity, by --trace itself
checkpoints/    the last two
"""

import contextlib
import fcntl
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from hpcgnn.config import Config
from hpcgnn.errors import RunDirError
from hpcgnn.nn.plugin import COPY, plugin_source
from hpcgnn.records import to_json, write_atomically

log = logging.getLogger("hpcgnn")


class RunDir:
    """Rank 0's hold on a run directory.

    Raises RunDirError if it exists (and is not to be resumed), or cannot be written.
    """

    def __init__(self, path: str | Path, resume: bool) -> None:
        self.path = Path(path)
        self._begun = False
        self._error: OSError | None = None
        try:
            self._existed = self.path.exists()
            if self._existed and not self.path.is_dir():
                raise RunDirError(f"{self.path} exists and is not a directory; choose another --run-dir")
            self._fresh = not self._existed or not any(self.path.iterdir())
            if not self._fresh and not resume:
                raise RunDirError(
                    f"run directory {self.path} exists and is not empty; continue that run with --resume, or choose "
                    "another --run-dir"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            self._log = open(self.path / "log.txt", "a", encoding="utf-8")
            self._lock()
            self._sweep()
            self._metrics = self._records_file()
        except OSError as error:
            raise RunDirError(
                f"cannot write run directory {self.path}: {error.strerror}; choose a --run-dir that is writable "
                "and has space"
            ) from error
        self._handler = _FileHandler(self._log)
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(self._handler)

    def _records_file(self) -> TextIO:
        return open(self.path / "metrics.jsonl", "a", encoding="utf-8")

    def _lock(self) -> None:
        try:
            fcntl.flock(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._log.close()
            raise RunDirError(
                f"run directory {self.path} is in use by another job; wait for it, or choose another --run-dir"
            ) from error
        except OSError:
            log.warning("the file system of %s has no locks; take care that no second job writes there", self.path)

    def _sweep(self) -> None:
        """Remove half-written files of killed writers; nobody else writes here now."""
        for folder in (".", "checkpoints", "checkpoints/*-ranks", "trace"):
            for left in self.path.glob(f"{folder}/.*.part"):
                left.unlink()

    def records(self) -> list[dict[str, Any]]:
        """The epoch records written so far, up to the first damaged line."""
        result = []
        for line in (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            try:
                result.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return result

    def begin(self, config: Config, epochs: int) -> None:
        """Write the configuration and drop the records after `epochs`, which the checkpoint does not cover.

        The configuration names the graph by an absolute path, and a copy of the plugin.
        """
        kept = [record for record in self.records() if record["epoch"] <= epochs]
        if len(kept) < epochs:
            log.warning(
                "metrics.jsonl has records of %d of the %d epochs done; the others were lost", len(kept), epochs
            )
        config = config.replace(graph=str(Path(config.data.graph).absolute()))
        if config.model.plugin:
            self.write(COPY, plugin_source(config.model.plugin))
            config = config.replace(plugin=str((self.path / COPY).resolve()))
        self.write("config.toml", config.to_toml())
        self._metrics.close()
        self.write("metrics.jsonl", "".join(to_json(record) + "\n" for record in kept))
        self._metrics = self._records_file()
        self._begun = True

    def append(self, record: dict[str, Any]) -> None:
        """Write the record of one epoch. An error is raised by `settle`; no record is written after it."""
        if not self.failed:
            try:
                self._metrics.write(to_json(record) + "\n")
                self._metrics.flush()
            except OSError as error:
                self._error = error

    @property
    def failed(self) -> bool:
        """Whether a record could not be written; `settle` raises the reason."""
        return self._error is not None

    def settle(self) -> None:
        """Put the records on the disk, so that a checkpoint never knows of epochs that have no records. Raises
        RunDirError if one could not be written.
        """
        try:
            if self._error is not None:
                raise self._error
            os.fsync(self._metrics.fileno())
        except OSError as error:
            raise RunDirError(
                f"cannot write {self.path / 'metrics.jsonl'}: {error.strerror}; free space and continue with --resume"
            ) from error

    def write(self, name: str, content: str | bytes) -> None:
        """Write a whole file, of text or of bytes, atomically."""
        write_atomically(self.path / name, content)

    def close(self) -> None:
        log.removeHandler(self._handler)
        for file in (self._metrics, self._log):
            with contextlib.suppress(OSError):  # `settle` has raised for a full disk; this error would hide that one
                file.close()
        if self._fresh and not self._begun:
            self._vanish()

    def _vanish(self) -> None:
        """Leave nothing behind of a run that never began, so that the corrected command can be given as it was."""
        with contextlib.suppress(OSError):
            for name in ("log.txt", "metrics.jsonl", "config.toml", COPY):
                (self.path / name).unlink(missing_ok=True)
            if not self._existed:
                self.path.rmdir()


class _FileHandler(logging.StreamHandler):
    """A log handler that ignores write errors: standard error has shown the line all the same."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def start_logging(rank: int) -> None:
    """Rank 0 speaks on standard error; the others only when something is wrong, and say who they are."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s" if rank == 0 else f"rank {rank}: %(message)s"))
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    log.propagate = False
