"""`hpcgnn import-weights`: weights of another program become a run, which all commands can use.

This module checks names, shapes and the graph once, in one process. Later commands, such as exact evaluation,
predictions or more training on any number of ranks, need not know the weights' origin.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from hpcgnn.app.export_weights import OPTIONS_OF_MODEL, SUFFIX, metadata_of, safetensors
from hpcgnn.app.libraries import LIBRARIES, Tensors, check_names
from hpcgnn.app.restart import run_identity
from hpcgnn.config import Config
from hpcgnn.engine.checkpoint import save_checkpoint
from hpcgnn.engine.optim import build_optimizer
from hpcgnn.engine.rundir import RunDir
from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.graph.opening import check_trainable
from hpcgnn.graphfile.labels import REGRESSION
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.registry import MODELS
from hpcgnn.options.removed import REMOVED, refuse_removed
from hpcgnn.plan.run_plan import plan
from hpcgnn.tasks.base import TARGETS, Scale
from hpcgnn.tasks.registry import task_traits
from hpcgnn.terminal import tell

_PICKLED = (".pt", ".pth")
# Under one of these names programs keep a state dict among other things.
_INSIDE = ("state_dict", "model_state_dict", "model")


def options_of_file(path: str) -> dict[str, Any]:
    """The options of the model that a file which `hpcgnn export` wrote knows; {} of other files. None of them names
    code: the file may be of another owner.
    """
    if Path(path).suffix != SUFFIX or not Path(path).is_file():
        return {}
    with _reading(path):
        told = metadata_of(path).get("options", {})
    for name in told.keys() & REMOVED.keys():
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
    if isinstance(found, dict):
        found = next((found[name] for name in _INSIDE if isinstance(found.get(name), dict)), found)
    if not isinstance(found, dict) or not all(isinstance(each, torch.Tensor) for each in found.values()):
        raise FormatError(f"{path}: expected a state dict, {{name: tensor}}; torch.save(model.state_dict(), FILE)")
    if found and all(name.startswith("module.") for name in found):  # of torch's DataParallel
        found = {name.removeprefix("module."): each for name, each in found.items()}
    return dict(found)
