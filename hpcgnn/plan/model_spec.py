"""The ModelSpec of a configuration on a graph, and a check that the graph has all the columns it needs."""

import torch

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.registry import MODELS, complete
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options.inputs import Inputs, inputs_of, inputs_text, made_flags
from hpcgnn.schedules.base import changing_edges
from hpcgnn.tasks.registry import TASKS

DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "mixed": torch.float32}


def model_spec(meta: GraphMeta, config: Config) -> ModelSpec:
    """The ModelSpec of a configuration on a graph."""
    text = inputs_text(config.task)
    options, inputs = config.model, inputs_of(text)
    task = TASKS.get(config.task.task)
    given = 0 if task is None else task.num_columns(config, meta)
    if not given or inputs != Inputs():
        check_features(config, inputs, meta)
    entry = MODELS[options.model]
    spec = ModelSpec(
        options,
        d_in=inputs.columns(meta.num_features, meta.num_edge_features, meta.num_classes) + given,
        classes=meta.num_classes if task is None else task.num_outputs(config, meta),
        sparse_input=meta.sparse_features and inputs.file,
        weighted=meta.weighted,
        edge_types=meta.num_edge_types,
        loop_relation=entry.traits().relational and config.data.self_loops == "add",
        node_types=meta.num_node_types,
        dtype=DTYPES[config.run.precision],
        kept=torch.bfloat16 if config.run.precision == "mixed" else None,
        inputs=text,
        edge_features=_edge_features(config, meta),
        same_edges=changing_edges(config) is None,
        facts=tuple(entry.facts(meta).items()),
        given=given,
        dimensions=meta.num_dimensions,
    )
    return complete(spec)


def _edge_features(config: Config, meta: GraphMeta) -> int:
    """Columns of the features of edges that there are for the model. Raises ConfigError, on all ranks, where training
    sees a subgraph.
    """
    if config.task.edge_features != "file":
        return 0
    if config.data.inductive and meta.num_edge_features:
        raise ConfigError.on_all(
            f"--inductive takes edges out, and the edges of {config.data.graph} have features; leave --inductive out, "
            "or train with --edge-features none"
        )
    return meta.num_edge_features


def check_features(config: Config, inputs: Inputs, meta: GraphMeta) -> None:
    """Raise GraphError or ConfigError, on all ranks, where the graph has not the features that are asked for."""
    if inputs.file and not meta.num_features:
        raise GraphError.on_all(
            f"{config.data.graph} has no node features; import it with a feature table (--features), or train with "
            "--features degree, or learned:64"
        )
    if inputs.edges and not meta.num_edge_features:
        raise GraphError.on_all(
            f"--features {config.task.features}: the edges of {config.data.graph} have no features; import it with a "
            "table of them, or leave edges out"
        )
    if inputs.file and inputs != Inputs() and meta.sparse_features:
        given = " ".join([f"--features {config.task.features}", *made_flags(config.task)])
        raise ConfigError.on_all(
            f"{given}: the features of {config.data.graph} are sparse, and nothing can be added to "
            "them; expected file, or none of the file's"
        )
