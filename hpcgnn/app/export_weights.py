"""`hpcgnn export`: the weights of a run as a file of named tensors that other programs read. No MPI, no pickle."""

import importlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from tabulate import tabulate

from hpcgnn.app.libraries import LIBRARIES
from hpcgnn.app.restart import run_identity
from hpcgnn.app.trained import chosen_weights, find_checkpoint
from hpcgnn.config import Config
from hpcgnn.engine.checkpoint import learned_path, read_checkpoint
from hpcgnn.engine.checkpoint_checks import check_identity
from hpcgnn.engine.summary import versions
from hpcgnn.errors import ConfigError, RunDirError
from hpcgnn.graphfile.labels import REGRESSION
from hpcgnn.graphfile.storage import GraphFile, replacing
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options.model import ModelConfig
from hpcgnn.output_files import check_outputs
from hpcgnn.outputs.files import files_read
from hpcgnn.plan.model_spec import model_spec
from hpcgnn.records import to_json
from hpcgnn.tasks.base import TARGETS, Scale
from hpcgnn.tasks.registry import TASKS, resolve_task
from hpcgnn.terminal import tell

SUFFIX = ".safetensors"
# Parts of models that other libraries do not have.
_OURS = ("heads.", f"{TARGETS}.")
#: Options that decide a model's function. None of them names code.
OPTIONS_OF_MODEL = {
    *({declared.name for declared in fields(ModelConfig)} - {"plugin"}),
    *("self_loops", "precision", "target_scale", "features"),
}
#: The entry of a file's metadata that describes the model of the weights, as JSON.
ENTRY = "hpcgnn"


def export(config: Config, output: str, to: str, weights: str = "best", force: bool = False) -> int:
    """Write the weights of the newest checkpoint of config.run.run_dir to a safetensors file. One process. Returns 0.

    to: 'torch' (names and shapes of ours), or a key of LIBRARIES; weights: 'best' (of validation) or 'last'. Raises
    ConfigError where the layers of `to` compute something else, RunDirError where nothing can be written.
    """
    save_file = safetensors().save_file
    if Path(output).suffix != SUFFIX:
        raise RunDirError(f"--output {output}: expected a name that ends with {SUFFIX}")
    check_outputs({"--output": output}, files_read(config), force)
    path = find_checkpoint(config.run.run_dir)
    progress, last, best, _ = read_checkpoint(path)
    state, epoch = chosen_weights(path, progress, last, best, weights)
    with GraphFile(config.data.graph) as file:
        meta = file.meta
    config = resolve_task(config, meta)
    spec = model_spec(meta, config)
    check_identity(path, progress["identity"], run_identity(config, spec, meta))
    scale = {part: state[f"{TARGETS}.{part}"].tolist() for part in Scale.PARTS if f"{TARGETS}.{part}" in state}
    if to != "torch":
        if reason := LIBRARIES[to].reason_against(spec, meta, config):
            raise ConfigError(f"--to {to}: {reason} (see docs/definitions.md); --to torch exports any model")
        ours = (*_OURS, f"{TASKS[config.task.task].module}.")
        own = {name: each for name, each in state.items() if not name.startswith(ours)}
        state = LIBRARIES[to].export(spec, own)
    origin = {"run": str(config.run.run_dir), "checkpoint": path.name, "weights": weights, "epoch": epoch}
    about = {
        "to": to,
        "options": options_of_model(config),
        "graph": {
            **{"uuid": meta.uuid, "features": spec.d_in, "classes": meta.num_classes, "source": meta.source},
            **{"task": config.task.task, "undirected": meta.undirected, "weighted": meta.weighted},
            **{"edge_types": meta.num_edge_types, "node_types": meta.num_node_types, "names": meta.type_names},
        },
        TARGETS: scale,
        "origin": {**origin, "versions": versions()},
    }
    with replacing(output) as temporary:
        save_file({name: each.contiguous() for name, each in state.items()}, temporary, {ENTRY: to_json(about)})
    _show(spec, state, output, f"{weights}, of epoch {epoch}")
    if spec.learned:
        tell(
            f"learned features of the nodes are not in it, but in {learned_path(config.run.run_dir, progress['epoch'])}"
        )
    return 0


def options_of_model(config: Config) -> dict[str, Any]:
    """Return the options that decide the model's function, for the reader of its weights."""
    values = {name: value for section in config.to_dict().values() for name, value in section.items()}
    left_out = set() if config.task.task == REGRESSION else {"target_scale"}
    return {name: value for name, value in values.items() if name in OPTIONS_OF_MODEL - left_out}


def metadata_of(path: str | Path) -> dict[str, Any]:
    """Return the metadata of an exported weights file, {} for a file of another program. Raises safetensors' errors."""
    with safetensors(inner="safetensors").safe_open(str(path), "pt") as file:
        return json.loads((file.metadata() or {}).get(ENTRY, "{}"))


def safetensors(inner: str = "safetensors.torch") -> Any:
    """The module. ConfigError where it is not installed."""
    try:
        return importlib.import_module(inner)
    except ImportError as error:
        raise ConfigError(
            "reading and writing .safetensors needs the package safetensors, which is not installed: pip install "
            "'hpcgnn[export]'"
        ) from error


def _show(spec: ModelSpec, state: dict[str, Any], output: str, weights: str) -> None:
    rows = [(name, " × ".join(map(str, each.shape)) or "1") for name, each in state.items()]
    tell(tabulate(rows, ("tensor", "shape"), tablefmt="rounded_outline", disable_numparse=True))
    tell(f"{spec.model}, weights {weights}, in {output}")
