"""`--tensorboard`: every epoch's scalars for TensorBoard, written by rank 0.

They are of the same record as `metrics.jsonl`. A failure never ends a run: after one warning nothing more is written,
and training goes on.
"""

import contextlib
import importlib
import importlib.util
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.declaring import option
from hpcgnn.engine.hooks import Plugin
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.options.run import RunConfig
from hpcgnn.records import metrics_by_split

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

log = logging.getLogger("hpcgnn")


@dataclass(frozen=True, kw_only=True)
class TensorBoardConfig(RunConfig):
    """The option `tensorboard`."""

    tensorboard: bool = option(
        False,
        "write every epoch's numbers for TensorBoard",
        details="Loss, metrics, seconds and bytes go to tensorboard/ of the run directory.",
    )


class TensorBoard(Plugin):
    """Writes into the folder `tensorboard` of a run directory. When a run resumes, TensorBoard drops its points of
    repeated epochs.
    """

    def __init__(self, run_dir: Path, metric: str) -> None:
        self._folder, self._metric = run_dir / "tensorboard", metric
        self._writer: Any = None
        self._failed = False

    def after_record(self, record: dict[str, Any]) -> None:
        if self._failed:
            return
        try:
            if self._writer is None:
                writers = importlib.import_module("torch.utils.tensorboard")
                self._writer = writers.SummaryWriter(str(self._folder), purge_step=record["epoch"], flush_secs=20)
            for name, value in scalars(record, self._metric).items():
                self._writer.add_scalar(name, value, record["epoch"])
        except Exception as error:
            self._failed = True
            log.warning("--tensorboard failed, and training goes on: %s: %s", type(error).__name__, error)

    @contextlib.contextmanager
    def run(self, trainer: "Trainer") -> Iterator[None]:
        try:
            yield
        finally:
            if self._writer is not None:
                with contextlib.suppress(Exception):
                    self._writer.close()


def scalars(record: dict[str, Any], metric: str) -> dict[str, float]:
    """Return {name: number} of an epoch.

    These are the loss, the learning rate, the metric of each split (all metrics, if the record has them), seconds of
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


def make(config: Config, session: Session, buffers: HaloBuffers) -> TensorBoard | None:
    """The plugin of rank 0 of a job with `--tensorboard`. Raises ConfigError if its package is missing."""
    if session.comm.rank or not cast(TensorBoardConfig, config.run).tensorboard:
        return None
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError("--tensorboard needs the package tensorboard: pip install 'hpcgnn[tensorboard]'")
    return TensorBoard(Path(config.run.run_dir), config.run.metric)
