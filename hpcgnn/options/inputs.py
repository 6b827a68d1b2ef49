"""The input columns of nodes: the words of `--features`, and columns of plugins."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from hpcgnn.errors import ConfigError
from hpcgnn.options.task import TaskConfig
from hpcgnn.registry import Registry

_WIDEST = 1 << 16
_PART = re.compile("([a-z]+)(?::([0-9]{1,5}))?")
_FIXED = "file", "degree", "edges"
#: Words of --features with a width, WORD:D, for D columns that a plugin learns for each node.
LEARNED: list[str] = []


@dataclass(frozen=True)
class MadeColumns:
    """Input columns that a plugin makes anew in each step (`Plugin.columns` of engine/hooks.py).

    Attributes:
        flag: options of the task -> the flag with its value, or '' without these columns.
        width: number of classes -> number of columns.
    """

    flag: Callable[[TaskConfig], str]
    width: Callable[[int], int]


#: By their word in the text of all inputs, after the words of --features.
MADE_COLUMNS: Registry[MadeColumns] = Registry("kind of input columns")


@dataclass(frozen=True)
class Inputs:
    """The input columns of nodes. Without file, degree, edges and learned columns there is one column of ones.

    Attributes:
        file: whether the columns of the graph file are inputs.
        degree: whether 1 and log(1 + in-degree) are inputs.
        edges: whether the means of in-edges' features are inputs.
        learned: number of learned columns, with a row for each node.
        made: names of MADE_COLUMNS.
    """

    file: bool = True
    degree: bool = False
    edges: bool = False
    learned: int = 0
    made: tuple[str, ...] = ()

    def fixed(self, num_features: int, num_edge_features: int) -> int:
        """How many columns do not change. num_features, num_edge_features: of the file."""
        return num_features * self.file + self.ones + self.degree + num_edge_features * self.edges

    @property
    def ones(self) -> bool:
        """Whether one of them is of ones."""
        return self.degree or not (self.file or self.edges or self.learned)

    @property
    def changing(self) -> bool:
        """Whether some of the columns change from step to step."""
        return self.made != () or self.learned > 0

    def columns(self, num_features: int, num_edge_features: int, classes: int) -> int:
        """How many there are in all."""
        return self.fixed(num_features, num_edge_features) + self.changing_columns(classes)

    def changing_columns(self, classes: int) -> int:
        """Number of columns that change from step to step: the last ones, learned before made."""
        return self.learned + sum(MADE_COLUMNS[name].width(classes) for name in self.made)


def made_flags(options: TaskConfig) -> list[str]:
    """The given flags of made columns."""
    return [flag for each in MADE_COLUMNS.values() if (flag := each.flag(options))]


def inputs_text(options: TaskConfig) -> str:
    """Return the inputs that the options select, as a text that `inputs_of` reads."""
    return "+".join([options.features, *[name for name, each in MADE_COLUMNS.items() if each.flag(options)]])


def inputs_of(text: str) -> Inputs:
    """The Inputs of a text of `inputs_text`. Raises ConfigError."""
    words = text.split("+")
    made = tuple(name for name in MADE_COLUMNS if name in words[1:])
    words = [word for word in words if word not in made]
    if words == ["none"]:
        return Inputs(file=False, made=made)
    parts = [_PART.fullmatch(word) for word in words]
    given = {part[1]: part[2] for part in parts if part}
    widths = [int(width or 0) for word, width in given.items() if word in LEARNED]
    fixed = [word for word, width in given.items() if word in _FIXED and width is None]
    if len(fixed) + len(widths) < len(words) or not all(0 < width <= _WIDEST for width in widths):
        wide = [f"{word}:D" for word in LEARNED]
        within = f" with D from 1 to {_WIDEST}" if wide else ""
        raise ConfigError(
            f"--features: expected {', '.join(['file, none, degree, edges', *wide])}{within}, or several of "
            f"{', '.join([*_FIXED, *wide])} joined by +, such as file+degree, got {text!r}"
        )
    return Inputs("file" in given, "degree" in given, "edges" in given, sum(widths), made)
