"""Windows of snapshots: the times of a training step, as places in the file. They are indices, never copies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.errors import ConfigError
from hpcgnn.extras.meshes.options import ALL, FieldsConfig, weights_of
from hpcgnn.graphfile.storage import SPLITS
from hpcgnn.option_fields import flag

#: Start times that follow each other and are used together in an epoch: they share most of their snapshots.
BLOCK = 32


@dataclass(frozen=True)
class FieldColumns:
    """The columns of inputs and targets.

    Attributes:
        inputs, targets: {field: its number of columns}, in the order of the columns.
        change: whether targets are changes of inputs.
        weights: of each target column.
        back: the input column that each target column is of, -1 for none.
    """

    inputs: Mapping[str, int]
    targets: Mapping[str, int]
    change: bool
    weights: Sequence[float]
    back: Sequence[int]

    @classmethod
    def of(cls, options: FieldsConfig, there: Mapping[str, int]) -> "FieldColumns":
        """Those that options choose of a file's fields {name: columns}. Raises ConfigError, on all ranks."""
        inputs, targets = (_chosen(name, getattr(options, name), there) for name in ("input_fields", "target_fields"))
        repeated, weights = set(targets) <= set(inputs), weights_of(options.field_weights)
        if unknown := ", ".join(set(weights) - set(targets)):
            raise ConfigError.on_all(
                f"--field-weights: expected names of targets ({', '.join(targets)}), got {unknown}"
            )
        kind = options.target_kind
        if kind == "change" and not (repeated and options.lag):
            raise ConfigError.on_all(
                f"--target-kind change: expected targets among the inputs ({', '.join(inputs)}) and --lag 1 or more, "
                f"got {', '.join(targets)} and --lag {options.lag}; take --target-kind value"
            )
        if options.rollout > 1 and not options.lag:
            raise ConfigError.on_all(f"--rollout {options.rollout}: expected --lag 1 or more, got 0")
        first, places = 0, dict[str, int]()
        for name, width in inputs.items():
            places[name], first = first, first + width
        if not set(targets) & set(inputs) and (options.rollout > 1 or options.noise):
            given = f"--rollout {options.rollout}" if options.rollout > 1 else f"--noise {options.noise}"
            raise ConfigError.on_all(f"{given}: expected a target among the inputs ({', '.join(inputs)}), got none")
        back = [places[name] + c if name in places else -1 for name, width in targets.items() for c in range(width)]
        each = [weights.get(name, 1.0) for name, width in targets.items() for _ in range(width)]
        if not any(each):
            raise ConfigError.on_all("--field-weights: expected a weight above 0 for a target, got none")
        return cls(inputs, targets, kind == "change" or (kind == "auto" and repeated and options.lag > 0), each, back)

    @classmethod
    def made_up(cls, inputs: int, targets: int) -> "FieldColumns":
        """One field of inputs, and one of targets."""
        return cls({"inputs": inputs}, {"targets": targets}, False, [1.0] * targets, [-1] * targets)

    @property
    def both(self) -> dict[str, int]:
        """{field: columns} of inputs and targets."""
        return {**self.inputs, **self.targets}

    @property
    def num_inputs(self) -> int:
        """Columns of one time of the inputs."""
        return sum(self.inputs.values())

    @property
    def num_targets(self) -> int:
        return sum(self.targets.values())


def _chosen(option: str, text: str, there: Mapping[str, int]) -> dict[str, int]:
    """{field: columns} of a list of names."""
    names = list(there) if text == ALL else text.split(",")
    if not set(names) <= set(there) or len(set(names)) < len(names):
        raise ConfigError.on_all(
            f"{flag(option)} {text}: expected fields of the graph file, each once ({', '.join(there)}), got "
            f"{', '.join(map(repr, sorted(set(names) - set(there)))) or 'a name twice'}"
        )
    return {each: there[each] for each in names}


@dataclass(frozen=True)
class Windows:
    """Which times go together.

    Attributes:
        trajectory, split: (T,), of each time; trajectories never fall.
        history, lag: times of the inputs, and how far apart times are.
    """

    trajectory: np.ndarray
    split: np.ndarray
    history: int
    lag: int

    @classmethod
    def made_up(cls, history: int, lag: int, rollout: int) -> "Windows":
        """A window for training with so many steps, and one for validation with a step."""
        lengths = [(history - 1 + steps) * lag + 1 for steps in (rollout, 1)]
        return cls(np.repeat([0, 1], lengths), np.repeat([SPLITS["train"], SPLITS["val"]], lengths), history, lag)

    def starts(self, split: str, steps: int = 1) -> np.ndarray:
        """int64: the last times of inputs of windows with so many steps, ascending.

        A window lies in one trajectory. All its targets are of the split, and for training its inputs as well.
        """
        before, after = (self.history - 1) * self.lag, steps * self.lag
        found = np.arange(before, len(self.split) - after)
        inside = self.trajectory[found - before] == self.trajectory[found + after]
        first = -before if split == "train" else self.lag
        for each in range(first, after + 1, self.lag) if self.lag else [0]:
            inside &= self.split[found + each] == SPLITS[split]
        return found[inside]

    def rollouts(self, split: str) -> Iterator[tuple[int, int]]:
        """(last time of inputs, number of steps) from the first window of a split in each trajectory on."""
        if not self.lag:
            return
        starts, first = set(self.starts(split).tolist()), dict[int, int]()
        for start in sorted(starts):
            first.setdefault(int(self.trajectory[start]), start)
        for start in first.values():
            count = 1
            while start + count * self.lag in starts:
                count += 1
            yield start, count

    def most(self, steps: int, fitting: int) -> int:
        """How many snapshots are in memory: those of a block's windows as far as they fit, or of two windows."""
        span = (self.history - 1 + steps) * self.lag + 1
        return max(2 * (self.history + steps) + 2, min(BLOCK + span, fitting))

    def last(self, time: int) -> int:
        """The last place of a time's trajectory."""
        return int(np.searchsorted(self.trajectory, self.trajectory[time], side="right")) - 1

    def times(self, start: int, steps: int) -> list[int]:
        """All times of a window, ascending."""
        return sorted({start + k * self.lag for k in range(1 - self.history, steps + 1)})


def drawn_order(starts: Sequence[int], key: int) -> list[int]:
    """The starts of an epoch: blocks of BLOCK that follow each other, and each within its block, in drawn orders."""
    words = kernels.random_words(key, torch.arange(len(starts)), 2).numpy()
    block = np.arange(len(starts)) // BLOCK
    return [starts[place] for place in np.lexsort((words[:, 1], words[block, 0]))]
