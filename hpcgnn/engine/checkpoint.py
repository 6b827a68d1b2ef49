"""Checkpoints: HDF5 with checksums, complete or absent, and nothing unpickled.

A checkpoint holds the parameters, the optimizer's state, the best parameters so far, tensors of plugins, and a JSON
text that identifies its run. Randomness needs no state: it is a function of seed and epoch. A run keeps the last two
checkpoints, so that a damaged one costs one interval, not the run. Files of single ranks, and of rows of all nodes, lie
in a folder beside it.
"""

import contextlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import torch

from hpcgnn.config import SECTION_OF
from hpcgnn.engine.optim import Optimizer
from hpcgnn.errors import AccessError, CheckpointError, HpcgnnError, RunDirError, TrainingError
from hpcgnn.graphfile.hdf5 import (
    check_dataset,
    opened,
    read_attributes,
    replacing,
    within,
    write_attributes,
    written_file,
)
from hpcgnn.nn.plugin import COPY
from hpcgnn.option_fields import flag
from hpcgnn.records import to_json

FORMAT, VERSION, KEEP = "hpcgnn-checkpoint", 3, 2
_NAME = re.compile(r"epoch-(\d+)(\.h5|-ranks)")
Tensors = dict[str, torch.Tensor]
#: check(checkpoint) of plugins, which raises CheckpointError unless their files beside it are whole.
CHECKS: list[Callable[["Checkpoint"], object]] = []


class Checkpoint:
    """A checkpoint that was read completely.

    Attributes:
        path: its file.
        progress: position of the run, see epochs.py.
        epoch, identity: of the progress.
        model, best: {name: tensor} of the model, and of the best epoch's or None.
        optimizer: {number of the parameter: {name: tensor}}.
    """

    def __init__(self, path: str | Path) -> None:
        """Raises CheckpointError where the file is damaged or foreign, AccessError where it cannot be opened now."""
        self.path = Path(path)
        with reading(f"checkpoint {path}", "it is truncated or corrupted"), opened(path) as file:
            attributes = read_attributes(file)
            if attributes.get("format") != FORMAT or attributes.get("format_version") != VERSION:
                raise CheckpointError(
                    f"{path} is not a checkpoint of format version {VERSION}; it was written by another program"
                )
            self.progress: dict[str, Any] = json.loads(attributes["progress"])
            self.epoch: int = self.progress["epoch"]
            self.identity: dict[str, Any] = self.progress["identity"]
            if best := self.progress.get("best"):  # JSON has no NaN: the metric of an empty split was written as null
                self.progress["best"] = {name: math.nan if value is None else value for name, value in best.items()}
            self._groups = {name: _read_tensors(file, name) for name in file if name != "optimizer"}
            self.model, self.best = self._groups["model"], self._groups["best_model"] or None
            states = within(file, "optimizer") or ()
            self.optimizer = {int(number): _read_tensors(file, f"optimizer/{number}") for number in states}

    @classmethod
    def newest(cls, run_dir: str | Path, warn: Callable[[str], object]) -> "Checkpoint | None":
        """The newest checkpoint of a run that reads completely, or None if there are none. One rank calls this.

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
                return cls(path).whole()
            except CheckpointError as error:
                warn(f"{error}; trying the one before")
        if paths:
            raise CheckpointError(
                f"no checkpoint in {Path(run_dir) / 'checkpoints'} can be read; remove them to start afresh"
            )
        return None

    def whole(self) -> "Checkpoint":
        """This one. Raises CheckpointError unless the files of plugins beside it are whole too."""
        for check in CHECKS:
            check(self)
        return self

    def group(self, name: str) -> Tensors:
        """{name: tensor} of the schedule or of a plugin; {} if it put nothing there."""
        return self._groups.get(name, {})

    def weights(self, which: str) -> tuple[Tensors, int]:
        """The 'best' or the 'last' weights, and their epoch. They are the weights that were evaluated: averages of runs
        of 0.4.0 with --ema. Raises CheckpointError where they are not there.
        """
        if which == "last" or self.progress.get("imported"):  # there are no others
            return self.model | self.group("averaged_model"), self.epoch
        if self.best is None:
            raise CheckpointError(
                f"{self.path} has no best weights: its run never evaluated, or its graph has no validation nodes; use "
                "--weights last"
            )
        return self.best, self.progress["best"]["epoch"]

    def rank_state(self, rank: int, belongs: dict[str, Any]) -> Tensors | None:
        """{name: tensor} of one rank, or None if there are none that belong to the same. Raises AccessError."""
        path = _rank_path(self.path.parents[1], self.epoch, rank)
        with contextlib.suppress(CheckpointError), reading(str(path), "it is damaged"), opened(path) as file:
            if json.loads(read_attributes(file)["belongs"]) == json.loads(to_json(belongs)):
                return _read_tensors(file, "tensors")
        return None


def restore(target: torch.nn.Module | Optimizer, state: Any) -> None:
    """Put saved tensors into a model or an optimizer. Raises CheckpointError if they do not fit."""
    try:
        target.load_state_dict(state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(f"the checkpoint's tensors do not fit this model: {error}") from error


def check_identity(path: str | Path, saved: dict[str, Any], present: dict[str, Any]) -> None:
    """Raise CheckpointError naming the first difference between a checkpoint's run and this run.

    A value that is newer than the checkpoint counts as unchanged.
    """
    for key, value in present.items():
        there = saved.get(key, value)
        if there != value:
            same = f"{flag(key)} {there}" if key in SECTION_OF and key != "graph" else "the same model, graph and seed"
            remedy = f"resume with {same}, or choose a new --run-dir"
            if key == "plugin":
                remedy = (
                    "that is another code of the plugin: take the copy that the run keeps, --plugin "
                    f"{Path(path).parent.parent / COPY}, or choose a new --run-dir for the new code"
                )
            raise CheckpointError(
                f"{path} belongs to another run: {key} is {there!r} there and {value!r} here; {remedy}"
            )


def check_stages(path: str | Path, progress: dict[str, Any], epochs: list[int]) -> None:
    """Raise CheckpointError if the stages before a checkpoint are not those of the run that goes on, which has these
    epochs in each.
    """
    done = progress.get("stage", 0)
    there = progress.get("planned", epochs)[:done]  # checkpoints of earlier versions do not know it
    if there != epochs[:done]:
        raise CheckpointError(
            f"{path} has layers that are trained: expected {there} epochs of these, got {epochs[:done]}; resume with "
            "--layer-epochs that begins with the former, or choose a new --run-dir"
        )


def checkpoint_path(run_dir: str | Path, epoch: int) -> Path:
    """Where the checkpoint after `epoch` epochs lies."""
    return Path(run_dir) / "checkpoints" / f"epoch-{epoch:06d}.h5"


def folder_beside(run_dir: str | Path, epoch: int) -> Path:
    """The folder of the files beside a checkpoint: of single ranks, and of rows of all nodes."""
    return checkpoint_path(run_dir, epoch).with_name(f"epoch-{epoch:06d}-ranks")


def _rank_path(run_dir: str | Path, epoch: int, rank: int) -> Path:
    return folder_beside(run_dir, epoch) / f"rank-{rank:05d}.h5"


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
        groups: {group: {name: tensor}} of plugins.

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
    states = {f"optimizer/{number}": state for number, state in optimizer.state_dict().items()}
    best = {"best_model": best_state or {}}
    with _writing(path):
        _write(path, {"model": model.state_dict(), **best, **(groups or {}), **states}, progress=progress)
        _keep_newest(run_dir, progress["epoch"])
    return path


def save_rank_state(run_dir: str | Path, epoch: int, rank: int, tensors: Tensors, belongs: dict[str, Any]) -> None:
    """Write one rank's tensors, before the checkpoint they belong to. Every rank calls this for itself. belongs:
    JSON-able dict that must agree for a later use of the tensors. Raises RunDirError.
    """
    path = _rank_path(run_dir, epoch, rank)
    with _writing(path):
        _write(path, {"tensors": tensors}, belongs=belongs)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, HpcgnnError) as error:
        raise RunDirError(
            f"cannot write checkpoint {path}: {error}; free space or choose another --run-dir; the checkpoint "
            "before it is kept"
        ) from error


def _write(path: Path, groups: Mapping[str, Mapping[str, torch.Tensor | None]], **about: dict[str, Any]) -> None:
    """Write a whole file of tensors. about: {attribute: JSON-able dict}."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, written_file(temporary) as (file, _):
        texts = {name: to_json(value) for name, value in about.items()}
        write_attributes(file, format=FORMAT, format_version=VERSION, **texts)
        for name, tensors in groups.items():
            _write_tensors(file.create_group(name), tensors)


def _keep_newest(run_dir: str | Path, epoch: int) -> None:
    """Remove all checkpoints but that of `epoch` and the newest whole ones before it, and all state of ranks without a
    checkpoint, which killed runs leave.
    """
    found, kept = sorted(_named(run_dir)), {epoch}
    for number, path in reversed(found):
        if path.suffix == ".h5" and number < epoch and len(kept) < KEEP:
            with contextlib.suppress(CheckpointError):
                with contextlib.suppress(AccessError):
                    Checkpoint(path).whole()
                kept.add(number)
    for number, path in found:
        if number not in kept and path.suffix == ".h5":
            path.unlink()
        elif number not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _write_tensors(group: h5py.Group, tensors: Mapping[str, torch.Tensor | None]) -> None:
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        flat = torch.as_tensor(tensor).detach().reshape(-1).numpy()
        dataset = group.create_dataset(
            name, data=flat, chunks=(max(1, min(len(flat), 1 << 18)),), maxshape=(None,), fletcher32=True
        )
        write_attributes(dataset, shape=list(torch.as_tensor(tensor).shape))


@contextlib.contextmanager
def reading(what: str, why: str) -> Iterator[None]:
    """Turn all that a damaged file raises in the body into CheckpointError."""
    try:
        yield
    except (AccessError, CheckpointError):
        raise
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{what} cannot be read: {error}; {why}") from error


def _read_tensors(file: h5py.File, name: str) -> Tensors:
    """{name: tensor} of a group of an open file. A foreign checkpoint must not open other files or load a filter's
    code. So external data raises FormatError.
    """
    group, size = within(file, name), os.path.getsize(file.filename)
    tensors = {}
    for key in group:
        dataset = within(group, key)
        check_dataset(file.filename, size, f"{name}/{key}", dataset)
        shape = [int(length) for length in read_attributes(dataset)["shape"]]
        tensors[key] = torch.from_numpy(dataset[:]).reshape(shape)
    return tensors
