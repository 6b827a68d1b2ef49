"""`hpcgnn predict --one-step SPLIT`: forecasts of one step for all windows of a split, in a file as of `rollout`."""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hpcgnn.app.corrections import PredictedTable
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.extras.meshes.options import FIELDS

if TYPE_CHECKING:
    from hpcgnn.app.loaded_model import LoadedModel
    from hpcgnn.app.predict import PredictRequest
    from hpcgnn.graphfile.storage import GraphFile


@dataclass(frozen=True)
class OneStep(PredictedTable):
    """The arrays of a split's windows."""

    split: str
    counted = "times"

    def check(self, config: Config, request: "PredictRequest") -> None:
        from hpcgnn.extras.meshes.rollout import check_hdf5

        if config.task.task != FIELDS:
            raise ConfigError(
                f"--one-step {self.split}: {config.run.run_dir} is a run of {config.task.task}, expected one of "
                f"--task {FIELDS}; leave the option out"
            )
        if request.probabilities or request.logits or request.layer or request.nodes or request.corrections:
            raise ConfigError(
                "--one-step writes fields of all nodes: expected no --probabilities, --logits, --embeddings, --nodes "
                "or correction; leave them out"
            )
        check_hdf5(request.output)

    def read(self, file: "GraphFile") -> None:
        return

    def write(self, output: str, trained: "LoadedModel", logits: Any, nodes: Any) -> int:
        from hpcgnn.extras.meshes.evaluator import FieldsEvaluator
        from hpcgnn.extras.meshes.field_file import field_file

        evaluator = cast(FieldsEvaluator, trained.trainer.evaluator)
        if (count := evaluator.counts[self.split]) == 0:
            raise GraphError.on_all(
                f"--one-step {self.split}: {trained.trainer.plan.config.data.graph} has no times of this split that "
                f"follow others; expected {', '.join(name for name, size in evaluator.counts.items() if size)}"
            )
        with field_file(output, trained, count) as file:
            for forecast in evaluator.one_step(cast(Any, logits), self.split):
                file.add(forecast)
        return count


def add_option(command: argparse.ArgumentParser) -> None:
    """The option of `predict`."""
    command.add_argument(
        "--one-step",
        metavar="SPLIT",
        choices=("train", "val", "test"),
        help="of fields, instead: forecasts of one step for all times of train, val or test; -o FILE.h5",
    )


def table_of(arguments: argparse.Namespace) -> PredictedTable | None:
    """The arrays that the arguments of `predict` ask for, or None."""
    return OneStep(arguments.one_step) if arguments.one_step else None
