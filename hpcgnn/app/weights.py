"""`hpcgnn export` and `import-weights`: weights as files of named tensors that other programs read or have written.

One process, without MPI or pickle. Weights of another program become a run, which all commands can use: names, shapes
and the graph are checked once, and later commands need not know the weights' origin.
"""

import contextlib
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from hpcgnn.app.resuming import run_identity
from hpcgnn.app.trained import find_checkpoint
from hpcgnn.config import Config
from hpcgnn.engine.checkpoint import check_identity, folder_beside, save_checkpoint
from hpcgnn.engine.optim import build_optimizer
from hpcgnn.engine.rundir import RunDir
from hpcgnn.engine.summary import versions
from hpcgnn.errors import CheckpointError, ConfigError, FormatError, RunDirError
from hpcgnn.graph.load import check_trainable
from hpcgnn.graphfile.hdf5 import replacing
from hpcgnn.graphfile.labels import REGRESSION
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options.model import ModelConfig
from hpcgnn.options.removed import REMOVED, refuse_removed
from hpcgnn.output_files import check_outputs
from hpcgnn.outputs.files import files_read
from hpcgnn.plan.model_spec import model_spec
from hpcgnn.plan.run_plan import plan
from hpcgnn.records import to_json
from hpcgnn.registry import Registry
from hpcgnn.tasks.base import TARGETS, Scale
from hpcgnn.tasks.registry import TASKS, resolve_task, task_traits
from hpcgnn.terminal import tell

Tensors = dict[str, torch.Tensor]
State = Mapping[str, torch.Tensor]
_MOST = 24  # tensors that an error names


class Library(ABC):
    """A program. title: its name in messages."""

    title: str

    @abstractmethod
    def reason_against(self, spec: ModelSpec, meta: GraphMeta, config: Config) -> str:
        """Why a model as it was trained has no equal among the layers, or ''."""

    @abstractmethod
    def export(self, spec: ModelSpec, state: State) -> Tensors:
        """Return their state dict for one of ours. `reason_against` has no objection to the model."""

    @abstractmethod
    def matches(self, spec: ModelSpec, state: State, template: State) -> int:
        """How many tensors of a state dict have names that this program gives them.

        template: our state dict of the same model.
        """

    @abstractmethod
    def take(self, spec: ModelSpec, state: State, template: State) -> Tensors:
        """Return our state dict for one of theirs. Raises CheckpointError with all names and shapes that do not fit."""


#: By the words of `--to`.
LIBRARIES: Registry[Library] = Registry("library")


def check_names(expected: State, given: State, optional: Iterable[str] = ()) -> None:
    """Raise CheckpointError, in one line, unless the same names are there with the same shapes."""
    wrong = [
        f"{name}: expected {list(tensor.shape)}, got {list(given[name].shape) if name in given else 'none'}"
        for name, tensor in expected.items()
        if name not in given or given[name].shape != tensor.shape
    ]
    wrong += [
        f"{name}: expected none, got {list(tensor.shape)}"
        for name, tensor in given.items()
        if name not in expected and name not in optional
    ]
    if wrong:
        more = f"; and {len(wrong) - _MOST} more" if len(wrong) > _MOST else ""
        raise CheckpointError(
            f"{len(wrong)} tensors do not fit the model: {'; '.join(wrong[:_MOST])}{more}. Give the options of "
            "the model that these weights are of (--model, --layers, --hidden, --norm, --heads, …)"
        )


SUFFIX, _PICKLED = ".safetensors", (".pt", ".pth")
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
    checkpoint = find_checkpoint(config.run.run_dir)
    state, epoch = checkpoint.weights(weights)
    with GraphFile(config.data.graph) as file:
        meta = file.meta
    config = resolve_task(config, meta)
    spec = model_spec(meta, config)
    check_identity(checkpoint.path, checkpoint.identity, run_identity(config, spec, meta))
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
    tell(f"{spec.model}, {len(state)} tensors, weights {weights}, of epoch {epoch}, in {output}")
    if spec.learned:
        folder = folder_beside(config.run.run_dir, checkpoint.epoch)
        tell(f"learned features of the nodes are not in it, but in {folder}")
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


def options_of_file(path: str) -> dict[str, Any]:
    """The options of the model that a file which `hpcgnn export` wrote knows; {} of other files. None of them names
    code: the file may be of another owner.
    """
    if Path(path).suffix != SUFFIX or not Path(path).is_file():
        return {}
    with _reading(path):
        told = metadata_of(path).get("options", {})
    for name in told.keys() & {name for name, removed in REMOVED.items() if not removed.trained}:
        refuse_removed(name, told[name], path)
    return {name: value for name, value in told.items() if name in OPTIONS_OF_MODEL}


def import_weights(path: str, config: Config) -> int:
    """Make the run directory config.run.run_dir with the weights of a file, as a checkpoint after no epoch. Returns 0.

    Raises CheckpointError for names or shapes that do not fit, ConfigError for options, FormatError for a file that
    cannot be read.
    """
    if not config.run.run_dir:
        raise ConfigError("import-weights: expected --run-dir with the directory to make, got none")
    if not task_traits(config.task.task).labels:
        raise ConfigError(
            f"import-weights: expected a task of labels, got --task {config.task.task}, whose runs have a scorer "
            "besides"
        )
    state = read_state(path)
    with GraphFile(config.data.graph) as file:
        check_trainable(file)
        meta = file.meta
    decided = plan(config, meta)
    config, spec = decided.config, decided.spec
    if spec.learned:
        raise ConfigError(
            f"--features {config.task.features}: features that are learned come with no file of weights; expected "
            "file, none or degree"
        )
    if decided.schedule.layer_by_layer:
        raise ConfigError(
            f"--schedule {config.schedule.schedule} trains layers one by one, and these are trained; "
            "expected another one"
        )
    model, scale = MODELS[spec.model].build(spec), None
    if config.task.task == REGRESSION and config.task.target_scale == "standard":
        scale = _scale(path, state, spec.classes)
    template = model.state_dict()
    library, known = None, len(state.keys() & template.keys())
    for each in LIBRARIES.values():
        if (matches := each.matches(spec, state, template)) > known:
            library, known = each, matches
    if library is None:
        state = {name: tensor for name, tensor in state.items() if not name.startswith("heads.")}
        check_names(template, state)
    else:
        if reason := library.reason_against(spec, meta, config):
            raise ConfigError(
                f"{path} has the weights of {library.title}'s layers, but {reason} (see docs/definitions.md)"
            )
        state = library.take(spec, state, template)
    model.load_state_dict(state)
    if scale is not None:
        model.add_module(TARGETS, scale)
    with contextlib.closing(RunDir(config.run.run_dir, resume=False)) as run_dir:
        run_dir.begin(config, 0)
        progress = {
            **{"epoch": 0, "best": None, "stage": 0, "begun": 0, "imported": str(path)},
            "identity": run_identity(config, spec, meta),
        }
        save_checkpoint(run_dir.path, model, build_optimizer(model, config.optim), None, progress)
    numbers = sum(each.numel() for each in model.parameters())
    names = library.title if library else "hpcgnn"
    tell(f"{config.run.run_dir}: {spec.model} with {numbers:,} parameters of {path} ({names}'s names)")
    tell(f"use them with `hpcgnn evaluate {config.run.run_dir}` or `hpcgnn predict {config.run.run_dir} -o FILE`")
    return 0


def _scale(path: str, state: Tensors, targets: int) -> Scale:
    """The Scale that weights for standardised targets come with, taken out of their state dict. Raises ConfigError."""
    found = {name: state.pop(f"{TARGETS}.{name}", None) for name in Scale.PARTS}
    if Path(path).suffix == SUFFIX:
        with _reading(path):
            told = metadata_of(path).get(TARGETS, {})
        found = {name: told.get(name) if each is None else each for name, each in found.items()}
    parts = [torch.as_tensor(each, dtype=torch.float64).reshape(-1) for each in found.values() if each is not None]
    if len(parts) != len(found) or any(len(each) != targets for each in parts):
        raise ConfigError(
            f"{path}: expected the mean and the deviation of {targets} targets by which the model learned, as files of "
            "`hpcgnn export` have them; say --target-scale none if it predicts in the units of the graph file"
        )
    return Scale(*parts)


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn errors of the body into FormatError for a file."""
    try:
        yield
    except (ConfigError, FormatError):
        raise
    except Exception as error:  # errors of safetensors and torch have no common class
        remedy = "save a state dict of tensors alone: torch.save(model.state_dict(), FILE)"
        if isinstance(error, OSError):
            remedy = "expected a file of weights"
        raise FormatError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}; {remedy}") from error


def read_state(path: str) -> Tensors:
    """{name: tensor} of a state dict in a safetensors or a torch file. Nothing in it is run. Raises FormatError."""
    suffix = Path(path).suffix
    if suffix not in (SUFFIX, *_PICKLED):
        raise FormatError(f"{path}: expected a name that ends with {SUFFIX}, .pt or .pth")
    with _reading(path):
        if suffix == SUFFIX:
            return safetensors().load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(found, dict) or not all(isinstance(each, torch.Tensor) for each in found.values()):
        raise FormatError(f"{path}: expected a state dict, {{name: tensor}}; torch.save(model.state_dict(), FILE)")
    return dict(found)
