"""Whether a checkpoint is of the run that goes on: its model, graph, seed, plugin, and the stages that are done."""

import logging
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from hpcgnn.errors import CheckpointError
from hpcgnn.nn.plugin import COPY
from hpcgnn.nn.spec import ModelSpec

log = logging.getLogger("hpcgnn")


def check_identity(path: str | Path, saved: dict[str, Any], present: dict[str, Any]) -> None:
    """Raise CheckpointError naming the first difference between a checkpoint's run and this run.

    An option that is newer than the checkpoint counts as its default, a fact of the graph as unchanged.
    """
    older = {field.name: str(field.default) for field in fields(ModelSpec) if field.default is not MISSING}
    older |= {"schedule": "sar", "plugin": ""}
    for key, value in present.items():
        there = saved.get(key, older.get(key, value))
        if key == "plugin" and value and key not in saved:
            log.warning(
                "%s does not know the code of its plugin, being older: the run assumes the code of --plugin", path
            )
            continue
        if key == "plugin" and there != value:
            raise CheckpointError(
                f"{path} was made with another code of the plugin than --plugin has now ({there or 'no plugin'}, "
                f"not {value or 'no plugin'}): take the copy that the run keeps, --plugin "
                f"{Path(path).parents[1] / COPY}, or choose a new --run-dir for the new code"
            )
        if there != value and key == "hidden_bias":
            raise CheckpointError(
                f"{path} was written before hidden layers went without the bias that batch norm takes away: expected "
                "a checkpoint of a model without it; train again in a new --run-dir, or go on with the version that "
                "wrote it"
            )
        if there != value:
            raise CheckpointError(
                f"{path} belongs to another run: {key} is {there!r} there and {value!r} here; resume with the "
                "same model, graph and seed, or choose a new --run-dir"
            )


def check_stages(path: str | Path, progress: dict[str, Any], epochs: list[int]) -> None:
    """Raise CheckpointError if the stages before a checkpoint are not those of the run that goes on, which has these
    epochs in each.
    """
    done = progress.get("stage", 0)
    if done >= len(epochs):
        raise CheckpointError(
            f"{path} is of stage {done + 1} of its schedule and this run has {len(epochs)}: --finetune was "
            "given there; resume with it"
        )
    there = progress.get("planned", epochs)[:done]  # checkpoints of earlier versions do not know it
    if there != epochs[:done]:
        raise CheckpointError(
            f"{path} has layers that are trained: expected {there} epochs of these, got {epochs[:done]}; resume with "
            "--layer-epochs that begins with the former, or choose a new --run-dir"
        )
