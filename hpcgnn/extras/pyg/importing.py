"""`hpcgnn import-weights`: a run of weights that another program trained.

One process, without MPI or pickle. Names, shapes and the graph are checked once. Later commands need not know the
weights' origin.
"""

import argparse
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from hpcgnn.app.resuming import run_identity
from hpcgnn.app.weights import ENTRY, LIBRARIES, OPTIONS_OF_MODEL, SUFFIX, Tensors, check_names, safetensors
from hpcgnn.cli.arguments import add_sections, read_options
from hpcgnn.cli.commands import Commands
from hpcgnn.config import Choices, Config, make_config
from hpcgnn.engine.checkpoint import save_checkpoint
from hpcgnn.engine.optim import build_optimizer
from hpcgnn.engine.rundir import RunDir
from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.graph.load import check_trainable
from hpcgnn.graphfile.label_files import REGRESSION
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.registry import MODELS
from hpcgnn.options.removed import REMOVED, refuse_removed
from hpcgnn.plan.run_plan import plan
from hpcgnn.tasks.base import TARGETS, Scale
from hpcgnn.tasks.registry import TASKS, task_traits
from hpcgnn.terminal import tell

IMPORT = """\
Make a run directory of weights that were trained elsewhere, such as with sampled neighbours in PyG. All commands then
take the run: exact evaluation and predictions on the whole graph, or more training:

    hpcgnn import-weights pyg.pt --graph graph.h5 --model sage --layers 2 --hidden 64 --run-dir runs/from-pyg
    mpiexec -n 4 hpcgnn evaluate runs/from-pyg

FILE is a state dict: safetensors, or a .pt file of tensors alone, with hpcgnn's or PyG's names. The options of the
model must be the same as in its training; a file of `hpcgnn export` has them. One process, without MPI."""


def add_import_weights(commands: Commands, choices: Choices) -> None:
    """`hpcgnn import-weights`."""
    command = commands.add_parser(
        "import-weights", help="a run directory of weights that were trained elsewhere", description=IMPORT
    )
    command.add_argument("file", metavar="FILE", help="the weights: .safetensors, or .pt with a state dict")
    add_sections(command, choices)
    command.set_defaults(process=process_import_weights)


def process_import_weights(arguments: argparse.Namespace, choices: Choices) -> int:
    """Make a run directory of weights that were trained elsewhere."""
    saved = {} if arguments.config else options_of_file(arguments.file)
    given = {**saved, **read_options(arguments)[0]}
    config = make_config(given, choices, arguments.config or "the command line")
    return import_weights(arguments.file, config)


def metadata_of(path: str | Path) -> dict[str, Any]:
    """Return the metadata of an exported weights file, {} for a file of another program. Raises safetensors' errors."""
    with safetensors(inner="safetensors").safe_open(str(path), "pt") as file:
        return json.loads((file.metadata() or {}).get(ENTRY, "{}"))


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
    state = read_state(path)
    with GraphFile(config.data.graph) as file:
        check_trainable(file, labelled=task_traits(config.task.task).labels)
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
    model, scale = MODELS[spec.options.model].build(spec), None
    if config.task.task == REGRESSION and config.task.target_scale == "standard":
        scale = _scale(path, state, spec.classes)
    template, numbers = model.state_dict(), sum(each.numel() for each in model.parameters())
    TASKS[config.task.task].prepare_model(model, spec, config)
    if sum(each.numel() for each in model.parameters()) > numbers:
        raise ConfigError(
            f"import-weights: expected a task without parameters of its own, got --task {config.task.task}, whose runs "
            "have a scorer besides"
        )
    whole = model.state_dict()
    library, known = None, len(state.keys() & template.keys())
    for each in LIBRARIES.values():
        if (matches := each.matches(spec, state, template)) > known:
            library, known = each, matches
    if library is None:
        state = {name: tensor for name, tensor in state.items() if not name.startswith("heads.")}
        check_names(whole if state.keys() & (whole.keys() - template.keys()) else template, state)
    else:
        if reason := library.reason_against(spec, meta, config):
            raise ConfigError(
                f"{path} has the weights of {library.title}'s layers, but {reason} (see docs/definitions.md)"
            )
        state = library.take(spec, state, template)
    model.load_state_dict({**whole, **state})  # a file need not have the task's own numbers, which a step learns
    if scale is not None:
        model.add_module(TARGETS, scale)
    with contextlib.closing(RunDir(config.run.run_dir, resume=False)) as run_dir:
        run_dir.begin(config, 0)
        progress = {
            **{"epoch": 0, "best": None, "stage": 0, "begun": 0, "imported": str(path)},
            "identity": run_identity(decided, meta),
        }
        save_checkpoint(run_dir.path, model, build_optimizer(model, config.optim), None, progress)
    names = library.title if library else "hpcgnn"
    tell(f"{config.run.run_dir}: {spec.options.model} with {numbers:,} parameters of {path} ({names}'s names)")
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
    if suffix not in (SUFFIX, ".pt", ".pth"):
        raise FormatError(f"{path}: expected a name that ends with {SUFFIX}, .pt or .pth")
    with _reading(path):
        if suffix == SUFFIX:
            return safetensors().load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(found, dict) or not all(isinstance(each, torch.Tensor) for each in found.values()):
        raise FormatError(f"{path}: expected a state dict, {{name: tensor}}; torch.save(model.state_dict(), FILE)")
    return dict(found)
