"""Learned input features, one row per node (`--features learned:D`), for graphs or nodes without features.

A rank holds the rows of its own nodes only, with their gradient and optimizer state. Remote rows stream past like
hidden states, and their gradients return to the owner the same way. So gradients are complete at the owner and need no
sum over ranks. Initial values are drawn by the node's original id. So the curve depends neither on the number of ranks
nor on the map.

A checkpoint keeps them in a file of their own, in the order of the original ids. Any number of ranks can read it.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import torch

from hpcgnn import kernels
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.checkpoint import Checkpoint, Tensors, folder_beside, reading
from hpcgnn.engine.hooks import Plugin
from hpcgnn.engine.optim import Optimizer, make_optimizer
from hpcgnn.errors import CheckpointError, TrainingError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graphfile.hdf5 import check_dataset, opened, read_attributes, within
from hpcgnn.graphfile.original_order import read_in_original_order, write_in_original_order
from hpcgnn.ops.draws import Purpose
from hpcgnn.options.inputs import inputs_of

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer


ROWS, BEST = "rows", "best"
_TILE = 1 << 14


def learned_path(run_dir: str | Path, epoch: int) -> Path:
    """Where the learned features of the checkpoint after `epoch` epochs lie."""
    return folder_beside(run_dir, epoch) / "learned-features.h5"


@contextlib.contextmanager
def _opened_rows(checkpoint: Checkpoint) -> Iterator[h5py.File]:
    path = learned_path(checkpoint.path.parents[1], checkpoint.epoch)
    with reading(f"learned features {path}", "they are missing or damaged"), opened(path) as file:
        yield file


def _rows_kept(checkpoint: Checkpoint) -> tuple[list[str], float | None]:
    """The names of the arrays in the file of rows, and the optimizer's step or None. Raises CheckpointError."""
    with _opened_rows(checkpoint) as file:
        return list(file), read_attributes(file).get("step")


def _rows(checkpoint: Checkpoint, name: str, shape: tuple[int, int], start: int, stop: int) -> torch.Tensor:
    """Some rows of an array of this shape in the file of rows. Raises CheckpointError."""
    with _opened_rows(checkpoint) as file:
        dataset = within(file, name)
        check_dataset(file.filename, os.path.getsize(file.filename), name, dataset)
        if dataset.shape != shape:
            raise CheckpointError(
                f"{file.filename}: {name} has shape {dataset.shape}, expected {shape}; it belongs to another run"
            )
        return torch.from_numpy(dataset[start:stop])


def check_rows(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError unless the file of rows is there, if the checkpoint's run has one."""
    if "learned" in checkpoint.identity.get("inputs", ""):
        _rows_kept(checkpoint)


class LearnedFeatures(Plugin):
    """The learned rows of owned nodes.

    Attributes:
        rows: (n_p, width), a leaf of autograd with its gradient.
        best: the rows of the best epoch so far, or None.
        ids: int64 (n_p,), original ids.
    """

    def __init__(self, trainer: "Trainer", ids: torch.Tensor, width: int) -> None:
        config, dtype, self._trainer = trainer.plan.config, trainer.plan.spec.dtype, trainer
        options = config.optim
        self.rows = torch.empty(len(ids), width, dtype=dtype)
        key = kernels.stream_key(config.run.seed, 0, 0, int(Purpose.LEARNED_FEATURE))
        for first in range(0, len(ids), _TILE):
            words = kernels.random_words(key, ids[first : first + _TILE], width)
            # Of mean 0 and deviation 1, as features are that were standardised.
            self.rows[first : first + _TILE] = (words.double() / 2.0**31 - 1) * math.sqrt(3)
        self.rows.requires_grad_()
        self.rows.grad = torch.zeros_like(self.rows)
        self.columns = self.rows
        self.best: torch.Tensor | None = None
        decay = options.weight_decay if options.weight_decay_layers == "all" else 0.0
        self.optimizer: Optimizer = make_optimizer([{"params": [self.rows], "weight_decay": decay}], options)

    @property
    def gradient(self) -> torch.Tensor:
        """Return the gradient of the rows, (n_p, width)."""
        assert self.rows.grad is not None, "made with the rows"
        return self.rows.grad

    def held(self) -> object:
        return self.rows, self.best, self.optimizer

    def later_bytes(self) -> int:
        return self.rows.nbytes if self.best is None else 0

    def before_step(self) -> None:
        self.optimizer.set_learning_rate(self._trainer.optimizer.param_groups[0]["lr"])
        self.gradient.zero_()

    def gradient_square(self) -> torch.Tensor:
        """The squared norm of the gradient of own rows in float64, (1,)."""
        total = torch.zeros(1, dtype=torch.float64)
        for tile in self.gradient.split(_TILE):  # torch would make a copy of all in float64
            total += torch.linalg.vector_norm(tile, dtype=torch.float64).square()
        return total

    def after_step(self, factor: float) -> None:
        """The step of the rows themselves."""
        self.gradient.mul_(factor)
        self.optimizer.step()

    def new_best(self) -> None:
        """Store a copy of the rows as the best epoch's."""
        if self.best is None:
            self.best = torch.empty_like(self.rows, requires_grad=False)
        self.best.copy_(self.rows.detach())

    def take_best(self) -> None:
        if self.best is not None:
            self.replace(self.best)

    def replace(self, rows: torch.Tensor) -> None:
        """Take other values for the rows."""
        with torch.no_grad():
            self.rows.copy_(rows)

    def summary(self, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"learned_features": self._trainer.graph.num_nodes * self.rows.shape[1]}

    def state(self, run_dir: str | Path, epoch: int) -> dict[str, Tensors]:
        """Write the rows to a file of their own; no tensors are for the checkpoint. Collective.

        Raises TrainingError on all ranks rather than replace good rows by such as no run can go on from.
        """
        comm, graph = self._trainer.comm, self._trainer.graph
        if comm.total(torch.tensor([not torch.isfinite(self.rows).all()]).long(), "control").item():
            raise TrainingError.on_all(
                f"learned features are not finite after epoch {epoch}, so no checkpoint is written; expected finite "
                "ones. Lower --lr or set --clip-norm, and continue from the checkpoint before with --resume"
            )
        parts = {ROWS: self.rows.detach()}
        if self.best is not None:
            parts[BEST] = self.best
        of_rows = self.optimizer.state_dict().get(0, {})
        parts |= {name: tensor for name, tensor in of_rows.items() if name != "step" and tensor is not None}
        steps = {"step": float(of_rows["step"])} if "step" in of_rows else {}
        path = learned_path(run_dir, epoch)
        with comm.together("writing the run directory"):
            if comm.rank == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
        write_in_original_order(path, parts, graph.ids, graph.num_nodes, comm, epoch=epoch, **steps)
        return {}

    def load(self, checkpoint: Checkpoint, best_only: bool = False) -> None:
        """Go on from the rows of a checkpoint, on any number of ranks. Collective.

        best_only: take the rows of its best epoch, for an evaluation, without the state of the optimizer.
        """
        graph, comm = self._trainer.graph, self._trainer.comm
        shape = graph.num_nodes, self.rows.shape[1]
        with comm.together("reading the learned features"):
            names, step = _rows_kept(checkpoint)
            if (BEST if best_only else ROWS) not in names:
                raise CheckpointError(
                    f"the learned features of {checkpoint.path} lack its rows; their file is truncated or corrupted"
                )

        def rows_of(name: str) -> torch.Tensor:
            return read_in_original_order(partial(_rows, checkpoint, name, shape), graph.ids, graph.num_nodes, comm)

        self.replace(rows_of(BEST if best_only else ROWS))
        if best_only:
            return
        self.best = rows_of(BEST) if BEST in names else None
        state = {name: rows_of(name) for name in self.optimizer.state_names if name in names}
        if step is not None:
            state["step"] = torch.tensor(step)
        if state:
            self.optimizer.load_state_dict({0: state})


def make(trainer: "Trainer", learns: bool) -> LearnedFeatures | None:
    """The plugin of a Trainer, if it has `--features learned:D`."""
    width = trainer.plan.spec.learned
    return LearnedFeatures(trainer, trainer.local.original_id, width) if width else None


def check_transport(config: Config, session: Session, buffers: HaloBuffers) -> None:
    """Raise ConfigError where checkpoints of learned features cannot be written. No plugin of a job."""
    if inputs_of(config.task.features).learned:
        what = f"--features {config.task.features}: learned features are gathered for a checkpoint"
        session.comm.check_pairwise(what)
