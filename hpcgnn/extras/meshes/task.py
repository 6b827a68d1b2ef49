"""The task `fields`: the values of fields on all nodes some snapshots later, from their values now.

The loss is the mean squared error of standardised targets over all nodes that are not given, with weights of nodes and
columns, so that no rank's share changes its meaning. Metrics are over the windows of each split of the times, exact
over all ranks. All sums use float64.
"""

from collections.abc import Sequence
from typing import ClassVar, cast

import torch

from hpcgnn.config import Config
from hpcgnn.errors import GraphError
from hpcgnn.extras.meshes.evaluator import NRMSE, FieldsEvaluator
from hpcgnn.extras.meshes.loss import FieldsLoss
from hpcgnn.extras.meshes.options import FIELDS, options_of
from hpcgnn.extras.meshes.scaling import Scaling
from hpcgnn.extras.meshes.setting import FieldSetting, epoch_work
from hpcgnn.extras.meshes.snapshots import Snapshots
from hpcgnn.extras.meshes.windows import FieldColumns
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.tasks.base import EpochWork, Judge, Loss, Metric, Setting, Task
from hpcgnn.traits import TaskTraits


class Fields(Task):
    """A Task without labels, which reads snapshots from the graph file in every step."""

    name, said, outputs, module = FIELDS, "fields of a mesh some time later", "columns of the targets", "scaling"
    judged, losses = "windows of snapshots", ("mse",)
    metrics: ClassVar[dict[str, Metric]] = {"nrmse": NRMSE}
    traits = TaskTraits(labels=False, all_rows=True, reads_on=True)

    def num_outputs(self, config: Config, meta: GraphMeta) -> int:
        return _columns(config, meta).num_targets

    def num_columns(self, config: Config, meta: GraphMeta) -> int:
        return _columns(config, meta).num_inputs * options_of(config).history

    def prepare_model(self, model: torch.nn.Module, spec: ModelSpec, config: Config) -> None:
        """The scaling becomes a part of the model, so that it is stored and loaded with it."""
        model.add_module(self.module, Scaling(spec.given // options_of(config).history, spec.classes))

    def work(self, config: Config, spec: ModelSpec, file: GraphFile) -> EpochWork:
        return epoch_work(config, _columns(config, file.meta), spec.dtype, Snapshots(file))

    def judges(self, on: Setting, learns: bool) -> tuple[Judge, Loss | None]:
        made = FieldSetting.of(on, cast(Scaling, on.model.get_submodule(self.module)))
        return FieldsEvaluator(self, made), FieldsLoss(made) if learns else None

    def columns(self, outputs: int, names: Sequence[str] = ()) -> list[str]:
        return [f"value_{column}" for column in range(outputs)]


def _columns(config: Config, meta: GraphMeta) -> FieldColumns:
    """The columns of inputs and targets. Raises GraphError or ConfigError, on all ranks."""
    if not meta.snapshots:
        raise GraphError.on_all(
            f"--task {FIELDS}: {config.data.graph} has no snapshots; add them with `python -m partition_tools "
            f"snapshots {config.data.graph} NAME=FILE`"
        )
    return FieldColumns.of(options_of(config), meta.snapshots)
