"""Learning from the outputs of another run (`--distill`): distillation (Hinton et al., 2015), and self-distillation if
that run is of the same model (born-again networks: Furlanello et al., ICML'18).

The file is that of `hpcgnn predict --logits -o FILE.npy`: (n, C), in the original order. A rank reads rows of its own
nodes. The loss gets a term: T² KL(teacher ‖ model) of both outputs over the temperature T, the mean over all nodes.

With `--distill-confidence` it is the reliable label utilization of GAMLP (RLU: Zhang et al., KDD'22). Nodes outside of
the training split count whose class has so large a probability p of the teacher, each by p. The sum is divided by the
number of training nodes, as published code does it up to one factor of the whole loss.
"""

from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch.nn.functional import kl_div

from hpcgnn.engine.hooks import Plugin
from hpcgnn.errors import ConfigError
from hpcgnn.tasks.objective import Objective

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer


class Distillation(Plugin):
    """The teacher's outputs and their term of the loss. Made collectively."""

    def __init__(self, trainer: "Trainer") -> None:
        options, self._trainer, local = trainer.plan.config.task, trainer, trainer.local
        self._weight, self._temperature = options.distill_weight, options.distill_temperature
        self._begun, self._nodes = False, local.num_nodes
        with trainer.comm.together("reading the teacher's outputs"):
            rows = _rows(options.distill, (local.num_nodes, local.num_classes), local.original_id.numpy())
        self._parts = self._reliable(torch.from_numpy(rows), options.distill_confidence)
        self._wanted = (torch.from_numpy(rows).to(trainer.plan.spec.dtype) / self._temperature).log_softmax(1)

    def _reliable(self, rows: torch.Tensor, least: float) -> torch.Tensor | None:
        """(n_p,): how much own nodes count; None: all alike. rows: the teacher's outputs."""
        if not least:
            return None
        sure = rows.softmax(1).amax(1)
        left_out = (sure < least) | self._trainer.local.mask("train")
        return sure.masked_fill_(left_out, 0.0).to(self._trainer.plan.spec.dtype)

    def held(self) -> object:
        return self._wanted, self._parts

    def before_step(self) -> None:
        if not self._begun:  # the objective is made after the plugins
            objective = cast(Objective, self._trainer.objective)
            objective.terms.append(self.term)
            if self._parts is not None:
                self._nodes = objective.num_train
            self._begun = True

    def term(self, logits: torch.Tensor) -> torch.Tensor:
        """This rank's share of the term: a scalar. logits: (n_p, C) of all own nodes."""
        found = (logits / self._temperature).log_softmax(1)
        if self._parts is None:
            apart = kl_div(found, self._wanted, reduction="sum", log_target=True)
        else:
            apart = kl_div(found, self._wanted, reduction="none", log_target=True).sum(1) @ self._parts
        return self._weight * self._temperature**2 * apart / self._nodes


def _rows(path: str, shape: tuple[int, int], ids: np.ndarray) -> np.ndarray:
    """float (n_p, C): rows of nodes of a file. Raises ConfigError."""
    try:
        stored = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--distill {path}: expected an array of numpy, got: {error}") from error
    if stored.shape != shape or stored.dtype.kind != "f":
        raise ConfigError(
            f"--distill {path}: expected floating-point numbers (nodes, classes) {shape}, got {stored.dtype} "
            f"{stored.shape}; write them with `hpcgnn predict --logits -o FILE.npy` of a run on the same graph"
        )
    rows = np.array(stored[ids])
    if not np.isfinite(rows).all():
        raise ConfigError(f"--distill {path}: it holds NaN or infinite numbers; write it again")
    return rows


def make(trainer: "Trainer", learns: bool) -> Distillation | None:
    """The plugin of a Trainer, if it has `--distill`."""
    return Distillation(trainer) if learns and trainer.plan.config.task.distill else None
