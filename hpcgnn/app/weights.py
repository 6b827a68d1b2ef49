"""`hpcgnn export`: weights as files of named tensors that other programs read. One process, without MPI or pickle."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from hpcgnn.app.loaded_model import find_checkpoint
from hpcgnn.app.resuming import run_identity
from hpcgnn.config import Config
from hpcgnn.engine.checkpoint import check_identity, folder_beside
from hpcgnn.engine.summary import versions
from hpcgnn.errors import CheckpointError, ConfigError, RunDirError
from hpcgnn.graphfile.hdf5 import replacing
from hpcgnn.graphfile.label_files import REGRESSION
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options.model import ModelConfig
from hpcgnn.output_files import check_outputs
from hpcgnn.outputs.files import files_read
from hpcgnn.plan.run_plan import plan
from hpcgnn.records import to_json
from hpcgnn.registry import Registry
from hpcgnn.tasks.base import TARGETS, Scale
from hpcgnn.tasks.registry import TASKS
from hpcgnn.terminal import tell

Tensors = dict[str, torch.Tensor]
State = Mapping[str, torch.Tensor]


class Library(ABC):
    """A program with layers of its own. title: its name."""

    title: str

    @abstractmethod
    def reason_against(self, spec: ModelSpec, meta: GraphMeta, config: Config) -> str:
        """Why a model as it was trained has no equal among the layers, or ''."""

    @abstractmethod
    def export(self, spec: ModelSpec, state: State) -> Tensors:
        """Return their state dict for one of ours. `reason_against` has no objection to the model."""

    @abstractmethod
    def matches(self, spec: ModelSpec, state: State, template: State) -> int:
        """How many tensors of a state dict have names that this library gives them.

        template: our state dict of the same model.
        """

    @abstractmethod
    def take(self, spec: ModelSpec, state: State, template: State) -> Tensors:
        """Return our state dict for one of theirs. Raises CheckpointError with all names and shapes that do not fit."""


#: By the words of `--to`.
LIBRARIES: Registry[Library] = Registry("library")
SUFFIX = ".safetensors"
# Parts of models that other libraries do not have.
_OURS = ("heads.", f"{TARGETS}.")
#: Options that decide a model's function. None of them names code.
OPTIONS_OF_MODEL = {
    *({declared.name for declared in fields(ModelConfig)} - {"plugin"}),
    *("self_loops", "precision", "target_scale", "features"),
}
_MOST = 24  # tensors that an error names
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
    checkpoint = find_checkpoint(config.run.run_dir)
    state, epoch = checkpoint.weights(weights)
    with GraphFile(config.data.graph) as file:
        meta = file.meta
    decided = plan(config, meta, learns=False)
    config, spec = decided.config, decided.spec
    check_identity(checkpoint.path, checkpoint.identity, run_identity(decided, meta))
    scale = {part: state[f"{TARGETS}.{part}"].tolist() for part in Scale.PARTS if f"{TARGETS}.{part}" in state}
    if to != "torch":
        if reason := LIBRARIES[to].reason_against(spec, meta, config):
            raise ConfigError(f"--to {to}: {reason} (see docs/definitions.md); --to torch exports any model")
        ours = (*_OURS, f"{TASKS[config.task.task].module}.")
        own = {name: each for name, each in state.items() if not name.startswith(ours)}
        state = LIBRARIES[to].export(spec, own)
    origin = {"run": str(config.run.run_dir), "checkpoint": checkpoint.path.name, "weights": weights, "epoch": epoch}
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
    tell(f"{spec.options.model}, {len(state)} tensors, weights {weights}, of epoch {epoch}, in {output}")
    if spec.learned:
        folder = folder_beside(config.run.run_dir, checkpoint.epoch)
        tell(f"learned features of the nodes are not in it, but in {folder}")
    return 0


def check_names(expected: State, given: State, optional: Iterable[str] = ()) -> None:
    """Raise CheckpointError, in one line, unless the same names are there with the same shapes."""

    def shape(state: State, name: str) -> str:
        return str(list(state[name].shape)) if name in state else "none"

    allowed = set(optional) - expected.keys()
    wrong = [
        f"{name}: expected {shape(expected, name)}, got {shape(given, name)}"
        for name in dict.fromkeys([*expected, *given])
        if shape(expected, name) != shape(given, name) and name not in allowed
    ]
    if wrong:
        more = f"; and {len(wrong) - _MOST} more" if len(wrong) > _MOST else ""
        raise CheckpointError(
            f"{len(wrong)} tensors do not fit the model: {'; '.join(wrong[:_MOST])}{more}. Give the options of "
            "the model that these weights are of (--model, --layers, --hidden, --norm, --heads, …)"
        )


def options_of_model(config: Config) -> dict[str, Any]:
    """Return the options that decide the model's function, for the reader of its weights."""
    values = {name: value for section in config.to_dict().values() for name, value in section.items()}
    left_out = set() if config.task.task == REGRESSION else {"target_scale"}
    return {name: value for name, value in values.items() if name in OPTIONS_OF_MODEL - left_out}


def safetensors(inner: str = "safetensors.torch") -> Any:
    """The module. ConfigError where it is not installed."""
    try:
        return importlib.import_module(inner)
    except ImportError as error:
        raise ConfigError(
            "reading and writing .safetensors needs the package safetensors, which is not installed: pip install "
            "'hpcgnn[export]'"
        ) from error
