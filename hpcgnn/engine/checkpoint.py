"""Checkpoints: HDF5 with checksums, complete or absent, and nothing unpickled.

A checkpoint holds the parameters, the optimizer's state, the best parameters so far, and a JSON text that identifies
its run. Randomness needs no state: it is a function of seed and epoch. A run keeps the last two checkpoints, so that a
damaged one costs one interval, not the run.
"""

import contextlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import torch

from hpcgnn.engine.optim import Optimizer
from hpcgnn.errors import AccessError, CheckpointError, FormatError, HpcgnnError, RunDirError, TrainingError
from hpcgnn.graphfile.hdf5 import check_dataset, opened, read_attributes, replacing, write_attributes, written_file
from hpcgnn.records import FIRST_EPOCH, to_json

log = logging.getLogger("hpcgnn")
# In version 2 `best` of the progress counted epochs from 0.
FORMAT, VERSION, KEEP = "hpcgnn-checkpoint", 3, 2
READABLE = (2, VERSION)
_NAME = re.compile(r"epoch-(\d+)(\.h5|-ranks)")
Tensors = dict[str, torch.Tensor]


def checkpoint_path(run_dir: str | Path, epoch: int) -> Path:
    """Where the checkpoint after `epoch` epochs lies."""
    return Path(run_dir) / "checkpoints" / f"epoch-{epoch:06d}.h5"


def checkpoints(run_dir: str | Path) -> list[Path]:
    """The paths of all checkpoints of a run, the oldest first. Raises AccessError if their folder may not be read."""
    return [path for _, path in sorted(_named(run_dir)) if path.suffix == ".h5"]


def _named(run_dir: str | Path) -> list[tuple[int, Path]]:
    """[(epoch, path)] of the checkpoints of a run, and of the folders of its ranks' state."""
    folder = Path(run_dir) / "checkpoints"
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise AccessError(f"{folder} may not be read: {error.strerror}; expected the folder of checkpoints") from error
    return [(int(found[1]), folder / found[0]) for found in map(_NAME.fullmatch, names) if found]


def save_checkpoint(
    run_dir: str | Path,
    model: torch.nn.Module,
    optimizer: Optimizer,
    best_state: Tensors | None,
    progress: dict[str, Any],
    groups: Mapping[str, Tensors] | None = None,
) -> Path:
    """Write a checkpoint and remove all others but the newest before it that is whole. One rank calls this.

    Args:
        run_dir: the run directory.
        model: the model with its parameters.
        optimizer: the optimizer with its state.
        best_state: parameters of the best epoch, or None.
        progress: JSON-able dict with at least `epoch` (finished epochs), `identity` (must agree on resume) and `best`.
        groups: {group: {name: tensor}} of the schedule and of plugins.

    Returns:
        the path of the checkpoint.

    Raises:
        TrainingError: the state is not finite; it would replace a good checkpoint.
        RunDirError: the file cannot be written.
    """
    path = checkpoint_path(run_dir, progress["epoch"])
    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise TrainingError(
                f"{name} is not finite after epoch {progress['epoch']}, so no checkpoint is written; expected finite "
                "parameters. Lower --lr or set --clip-norm, and continue from the checkpoint before with --resume"
            )
    try:
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary, written_file(temporary) as (file, _):
            write_attributes(file, format=FORMAT, format_version=VERSION, progress=to_json(progress))
            _write_tensors(file.create_group("model"), model.state_dict())
            _write_tensors(file.create_group("best_model"), best_state or {})
            for group, tensors in (groups or {}).items():
                _write_tensors(file.create_group(group), tensors)
            for index, state in optimizer.state_dict().items():
                _write_tensors(file.create_group(f"optimizer/{index}"), state)
        _keep_newest(run_dir, progress["epoch"])
    except (OSError, HpcgnnError) as error:
        raise RunDirError(
            f"cannot write checkpoint {path}: {error}; free space or choose another --run-dir; the checkpoint "
            "before it is kept"
        ) from error
    return path


def _keep_newest(run_dir: str | Path, epoch: int) -> None:
    """Remove all checkpoints but that of `epoch` and the newest whole ones before it, and all state of ranks without a
    checkpoint, which killed runs leave.
    """
    found, kept = sorted(_named(run_dir)), {epoch}
    for number, path in reversed(found):
        if path.suffix == ".h5" and number < epoch and len(kept) < KEEP:
            with contextlib.suppress(CheckpointError):
                with contextlib.suppress(AccessError):
                    _check_whole(path)
                kept.add(number)
    for number, path in found:
        if number not in kept and path.suffix == ".h5":
            path.unlink()
        elif number not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _check_whole(path: Path) -> None:
    """Raise CheckpointError unless all of a checkpoint reads, and AccessError where it cannot be opened."""
    progress = read_checkpoint(path)[0]
    if "learned" in progress["identity"].get("inputs", ""):
        with open_learned(learned_path(path.parents[1], progress["epoch"])):
            pass


def _write_tensors(group: Any, tensors: Mapping[str, torch.Tensor | None]) -> None:
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        flat = torch.as_tensor(tensor).detach().reshape(-1).numpy()
        dataset = group.create_dataset(
            name, data=flat, chunks=(max(1, min(len(flat), 1 << 18)),), maxshape=(None,), fletcher32=True
        )
        write_attributes(dataset, shape=list(torch.as_tensor(tensor).shape))


def _read_tensors(file: Any, name: str) -> Tensors:
    """Return {name: tensor} of a group of an open file.

    A foreign checkpoint must not open other files or load a filter's code. So external data raises CheckpointError.
    """
    group, size = _within(file, file, name), os.path.getsize(file.filename)
    tensors = {}
    for key in group:
        dataset = _within(file, group, key)
        try:
            check_dataset(file.filename, size, f"{name}/{key}", dataset)
            shape = [int(length) for length in read_attributes(dataset)["shape"]]
        except FormatError as error:
            raise CheckpointError(str(error)) from error
        tensors[key] = torch.from_numpy(dataset[:]).reshape(shape)
    return tensors


def _within(file: Any, group: Any, name: str) -> Any:
    for part in name.split("/"):
        if not isinstance(group.get(part, getlink=True), (h5py.HardLink, type(None))):
            raise CheckpointError(f"{file.filename}: {name} is a link ({part}); links are refused")
        group = group[part]
    if isinstance(group, h5py.Dataset) and (group.external or group.is_virtual):
        raise CheckpointError(f"{file.filename}: {name} keeps its data in other files; that is refused")
    return group


def read_checkpoint(path: str | Path) -> tuple[dict[str, Any], Tensors, Tensors | None, dict[int, Tensors]]:
    """(progress dict, model state, best state or None, optimizer state {index: {name: tensor}}).

    Raises CheckpointError where it is damaged or foreign, and AccessError where it cannot be opened now.
    """
    try:
        with opened(path) as file:
            attributes = read_attributes(file)
            if attributes.get("format") != FORMAT or attributes.get("format_version") not in READABLE:
                raise CheckpointError(
                    f"{path} is not a checkpoint of format version {' or '.join(map(str, READABLE))}; it was written "
                    "by another program"
                )
            groups = _within(file, file, "optimizer") if "optimizer" in file else ()
            if "averaged_model" in file:  # which `read_averaged` reads, once it is known to be whole
                _read_tensors(file, "averaged_model")
            return (
                _progress(attributes),
                _read_tensors(file, "model"),
                _read_tensors(file, "best_model") or None,
                {int(index): _read_tensors(file, f"optimizer/{index}") for index in groups},
            )
    except (AccessError, CheckpointError):
        raise
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}; it is truncated or corrupted") from error


def _progress(attributes: dict[str, Any]) -> dict[str, Any]:
    progress = json.loads(attributes["progress"])
    if attributes["format_version"] == 2 and progress.get("best"):
        progress["best"]["epoch"] += FIRST_EPOCH
    return progress


def read_identity(path: str | Path) -> dict[str, Any]:
    """What identifies the run of a checkpoint that reads."""
    with opened(path) as file:
        return _progress(read_attributes(file))["identity"]


def read_schedule_state(path: str | Path) -> Tensors:
    """{name: tensor} that the schedule put into a checkpoint that reads; {} if it put nothing there."""
    return read_group(path, "schedule")


def read_averaged(path: str | Path) -> Tensors:
    """{name: tensor} of the averaged parameters in a checkpoint that reads; {} if its run averages none."""
    return read_group(path, "averaged_model")


def read_group(path: str | Path, name: str) -> Tensors:
    """{name: tensor} of a group of a checkpoint that reads; {} if it has none."""
    with opened(path) as file:
        return _read_tensors(file, name) if name in file else {}


def newest_readable(run_dir: str | Path, warn: Callable[[str], object]) -> Path | None:
    """Return the path of the newest checkpoint that reads completely, or None if there are none. One rank calls this.

    Args:
        run_dir: the run directory.
        warn: called with a text for each unreadable checkpoint.

    Raises:
        CheckpointError: there are checkpoints, and all are unreadable.
        AccessError: the newest one may be whole, and cannot be opened now.
    """
    paths = checkpoints(run_dir)
    for path in reversed(paths):
        try:
            _check_whole(path)
            return path
        except CheckpointError as error:
            warn(f"{error}; trying the one before")
    if paths:
        raise CheckpointError(
            f"no checkpoint in {Path(run_dir) / 'checkpoints'} can be read; remove them to start afresh"
        )
    return None


def _ranks_folder(path: Path) -> Path:
    return path.with_name(f"{path.stem}-ranks")


def _rank_path(run_dir: str | Path, epoch: int, rank: int) -> Path:
    return _ranks_folder(checkpoint_path(run_dir, epoch)) / f"rank-{rank:05d}.h5"


def save_rank_state(run_dir: str | Path, epoch: int, rank: int, tensors: Tensors, belongs: dict[str, Any]) -> None:
    """Write one rank's tensors, before the checkpoint they belong to. Every rank calls this for itself.

    Args:
        run_dir: the run directory.
        epoch: number of finished epochs.
        rank: this rank.
        tensors: {name: tensor}.
        belongs: JSON-able dict that must agree for a later use of the tensors.

    Raises:
        RunDirError: the file cannot be written.
    """
    path = _rank_path(run_dir, epoch, rank)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, written_file(temporary) as (file, _):
            write_attributes(file, format=FORMAT, format_version=VERSION, belongs=to_json(belongs))
            _write_tensors(file.create_group("tensors"), tensors)
    except (OSError, HpcgnnError) as error:
        raise RunDirError(
            f"cannot write {path}: {error}; free space or choose another --run-dir; the checkpoint before it is kept"
        ) from error


def read_rank_state(run_dir: str | Path, epoch: int, rank: int, belongs: dict[str, Any]) -> Tensors | None:
    """{name: tensor} of one rank, or None if there are none that belong to the same. Raises AccessError."""
    try:
        with opened(_rank_path(run_dir, epoch, rank)) as file:
            if json.loads(read_attributes(file)["belongs"]) != json.loads(to_json(belongs)):
                return None
            return _read_tensors(file, "tensors")
    except AccessError:
        raise
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError):
        return None


def learned_path(run_dir: str | Path, epoch: int) -> Path:
    """Where the learned features of the checkpoint after `epoch` epochs lie."""
    return _ranks_folder(checkpoint_path(run_dir, epoch)) / "learned-features.h5"


class LearnedFile:
    """An open file of learned features.

    Attributes:
        parts: names of its arrays.
        step: the optimizer's step, or None.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._attributes = file, read_attributes(file)
        self.parts = list(file)
        self.step: float | None = self._attributes.get("step")

    def read(self, name: str, shape: tuple[int, int], start: int, stop: int) -> torch.Tensor:
        """Rows of one part, of a given shape. Raises CheckpointError."""
        dataset = _within(self._file, self._file, name)
        check_dataset(self._file.filename, os.path.getsize(self._file.filename), name, dataset)
        if dataset.shape != shape:
            raise CheckpointError(
                f"{self._file.filename}: {name} has shape {dataset.shape}, expected {shape}; it belongs to another run"
            )
        return torch.from_numpy(dataset[start:stop])


@contextlib.contextmanager
def open_learned(path: Path) -> Iterator[LearnedFile]:
    """The file of learned features of a checkpoint. Raises CheckpointError where it cannot be read."""
    try:
        with opened(path) as file:
            yield LearnedFile(file)
    except (AccessError, CheckpointError):
        raise
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"learned features {path} cannot be read: {error}; they are missing or damaged"
        ) from error


def restore(
    model: torch.nn.Module, optimizer: Optimizer, model_state: Tensors, optimizer_state: dict[int, Tensors]
) -> None:
    """Put saved tensors into a model and its optimizer. Raises CheckpointError if they do not fit."""
    try:
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(f"the checkpoint's tensors do not fit this model: {error}") from error
