"""Learning from the outputs of another run (`--distill`): distillation (Hinton et al., 2015), and self-distillation if
that run is of the same model (born-again networks: Furlanello et al., ICML'18).

The file is that of `hpcgnn predict --logits -o FILE.npy`: (n, C), in the original order. A rank reads rows of its own
nodes. The loss gets a term: T² KL(teacher ‖ model) of both outputs over the temperature T, the mean over all nodes.
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
        self._wanted = (torch.from_numpy(rows).to(trainer.plan.spec.dtype) / self._temperature).log_softmax(1)

    def held(self) -> object:
        return self._wanted

    def before_step(self) -> None:
        if not self._begun:  # the objective is made after the plugins
            cast(Objective, self._trainer.objective).terms.append(self.term)
            self._begun = True

    def term(self, logits: torch.Tensor) -> torch.Tensor:
        """This rank's share of the term: a scalar. logits: (n_p, C) of all own nodes."""
        found = (logits / self._temperature).log_softmax(1)
        apart = kl_div(found, self._wanted, reduction="sum", log_target=True)
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
