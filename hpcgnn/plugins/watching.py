"""Live reports of every epoch: to TensorBoard (`--tensorboard`), and to a file of the user's (`--watch`).

Both run on rank 0, and get the same record as `metrics.jsonl`. A failing watcher never ends a run: after one warning it
is left alone, and training goes on.
"""

import contextlib
import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.hooks import Plugin
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.nn.plugin import read_code
from hpcgnn.records import metrics_by_split

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

log = logging.getLogger("hpcgnn")
Record = dict[str, Any]
# Folder of a run directory.
TENSORBOARD = "tensorboard"


class Watcher(Protocol):
    """epoch(record): called after each epoch with its line of metrics.jsonl. close(): called at the end."""

    def epoch(self, record: Record) -> object: ...

    def close(self) -> object: ...


class TensorBoard:
    """Writes each epoch's scalars into the folder `tensorboard` of a run directory.

    When a run resumes, TensorBoard drops its points of repeated epochs.
    """

    def __init__(self, run_dir: Path, metric: str) -> None:
        self._folder, self._metric = run_dir / TENSORBOARD, metric
        self._writer: Any = None

    def epoch(self, record: Record) -> None:
        if self._writer is None:
            writers = importlib.import_module("torch.utils.tensorboard")
            self._writer = writers.SummaryWriter(str(self._folder), purge_step=record["epoch"], flush_secs=20)
        for name, value in scalars(record, self._metric).items():
            self._writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def scalars(record: Record, metric: str) -> dict[str, float]:
    """Return {name: number} of an epoch.

    These are the loss, the learning rate, the metric of each split (where the record has them, all metrics), seconds of
    the slowest rank by phase, and bytes and messages of all ranks by kind.
    """
    found = {name: record[name] for name in ("loss", "lr")}
    found |= {f"{metric}/{split}": record[split] for split in ("train", "val", "test") if record.get(split) is not None}
    for table in metrics_by_split(record).values():
        found |= {f"{name}/{split}": value for split, values in table.items() for name, value in values.items()}
    found |= {f"seconds/{phase}": spread["max"] for phase, spread in record["seconds"].items()}
    for group in ("bytes", "messages"):
        found |= {f"{group}/{kind}": spread["sum"] for kind, spread in record[group].items()}
    return {name: value for name, value in found.items() if value == value}  # not NaN, which is not defined


class _OwnFile:
    """A Python file with a function `epoch(record)`, and perhaps `close()`."""

    def __init__(self, path: str) -> None:
        source = read_code("--watch", path)
        spec = importlib.util.spec_from_file_location(f"hpcgnn_watch_{Path(path).stem}", path)
        if spec is None:
            raise ConfigError(f"--watch: {path} is not a Python file; expected a name that ends with .py")
        module = importlib.util.module_from_spec(spec)
        try:  # not by Python's loader, which may take compiled code that lies beside the file
            exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
        except Exception as error:
            raise ConfigError(f"--watch: {path} cannot be run: {type(error).__name__}: {error}; mend it") from error
        epoch = getattr(module, "epoch", None)
        if not callable(epoch):
            raise ConfigError(
                f"--watch: {path} has no function epoch(record); expected one, which is called after epochs"
            )
        self.epoch: Callable[[Record], object] = epoch
        self.close: Callable[[], object] = getattr(module, "close", lambda: None)


class Watchers(Plugin):
    """All watchers of a run, by the option that asked for each."""

    def __init__(self, watchers: dict[str, Watcher]) -> None:
        self._watchers = watchers

    def after_record(self, record: Record) -> None:
        for option, watcher in list(self._watchers.items()):
            try:
                watcher.epoch(record)
            except Exception as error:
                del self._watchers[option]
                log.warning(
                    "%s failed after epoch %d and is not told of more; training goes on: %s: %s",
                    *(option, record["epoch"], type(error).__name__, error),
                )

    @contextlib.contextmanager
    def run(self, trainer: "Trainer") -> Iterator[None]:
        try:
            yield
        finally:
            self._close()

    def _close(self) -> None:
        for option, watcher in self._watchers.items():
            try:
                watcher.close()
            except Exception as error:
                log.warning("%s failed at the end: %s: %s", option, type(error).__name__, error)


def make(config: Config, session: Session, buffers: HaloBuffers) -> Watchers | None:
    """The watchers of a job on rank 0, or None. Raises ConfigError if their package or file is missing."""
    if session.comm.rank or not (config.run.tensorboard or config.run.watch):
        return None
    watchers: dict[str, Watcher] = {}
    if config.run.tensorboard:
        if importlib.util.find_spec("tensorboard") is None:
            raise ConfigError("--tensorboard needs the package tensorboard: pip install 'hpcgnn[tensorboard]'")
        watchers["--tensorboard"] = TensorBoard(Path(config.run.run_dir), config.run.metric)
    if config.run.watch:
        watchers[f"--watch {config.run.watch}"] = _OwnFile(config.run.watch)
    return Watchers(watchers)
