"""Features that stay in memory in the type of the file, where the first layer reads them some rows at a time."""

import torch

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options.inputs import Inputs, inputs_of
from hpcgnn.plan.rules import Selection

#: Types that float32 has all numbers of, by their names in a file.
_NARROW = {"float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}


def reads_in_tiles(config: Config, spec: ModelSpec) -> bool:
    """Whether the first layer reads its constant inputs in order, some rows at a time."""
    selection, layer = Selection(config), MODELS[spec.model].traits(spec)
    schedule = selection.schedule
    if spec.sparse_input or spec.changing or not schedule.within_memory:
        return False
    if not spec.constant_input:  # layer by layer, a copy of the halo stays in memory with the own rows
        return layer.input == "tiles" and not schedule.layer_by_layer and not spec.edge_features
    raw = spec.input_dropout == "raw" and spec.dropout > 0
    return layer.constants_in_tiles and (spec.keeps_input or (selection.entry.sends_once(config) and not raw))


def check_aggregate(config: Config, spec: ModelSpec) -> None:
    """Raise ConfigError, on all ranks, for a type of the kept aggregate that the layer does not widen."""
    asked = config.model.keep_input_dtype
    if asked != "auto" and not MODELS[spec.model].traits(spec).constants_in_tiles:
        raise ConfigError.on_all(
            f"--set model.keep_input_dtype={asked} is for layers that read the aggregate some rows at a time (gcn, "
            f"sage with the mean, gin, sgc); leave it out for this {spec.model}"
        )


def check_keep(config: Config, spec: ModelSpec) -> None:
    """Raise ConfigError, on all ranks, for rounded activations whose gradients would not be right in the mean."""
    if config.model.keep == "exact":
        return
    traits = MODELS[spec.model].traits(spec)
    able = traits.codes and not spec.edge_features and spec.jumping != "max" and config.run.precision != "mixed"
    if not able or not Selection(config).schedule.exact_epochs:
        raise ConfigError.on_all(
            "--keep int8: expected --model gcn, sage with the mean, gin, or gat, gatv2 or transformer without "
            "features of edges, no --jumping max, --precision fp32 or fp64, and --schedule sar; "
            f"got --model {spec.model}, --aggregator {spec.aggregator}, --jumping {spec.jumping}, "
            f"--precision {config.run.precision}, --schedule {config.schedule.schedule}; use --keep exact"
        )


def held_type(meta: GraphMeta, config: Config, spec: ModelSpec) -> torch.dtype | None:
    """The type of the features in memory where it is the file's own, narrower one; else None."""
    fits = inputs_of(spec.inputs) == Inputs() and spec.dtype == torch.float32
    in_tiles = reads_in_tiles(config, spec) and (spec.constant_input or not spec.node_types)
    return _NARROW.get(meta.feature_type) if fits and (in_tiles or _multiplies(config, spec)) else None


def _multiplies(config: Config, spec: ModelSpec) -> bool:
    """Whether the first layer multiplies its constant inputs with its weights, and sums no rows of them: it reads them
    some rows at a time, but in no order.
    """
    schedule, layer = Selection(config).schedule, MODELS[spec.model].traits(spec)
    if spec.sparse_input or spec.changing or not schedule.within_memory or schedule.layer_by_layer or spec.keeps_input:
        return False
    if spec.node_types:
        return False
    return layer.input != "rows" and spec.d_in > spec.first_width if spec.constant_input else layer.input == "product"
