"""The input columns of nodes, from `--features` and `--label-reuse`: file, degree, edges, learned, or labels."""

import re
from dataclasses import dataclass

from hpcgnn.errors import ConfigError
from hpcgnn.options.task import TaskConfig

_WIDEST = 1 << 16
#: The word for the labels in the text of all inputs, after the words of --features.
LABELS = "+labels"
# A word, and after `learned` a width.
_PART = re.compile("(file|degree|edges|learned)(?:(?<=learned):([0-9]{1,5}))?")


@dataclass(frozen=True)
class Inputs:
    """The input columns of nodes. Without file, degree, edges and learned columns there is one column of ones.

    Attributes:
        file: whether the columns of the graph file are inputs.
        degree: whether 1 and log(1 + in-degree) are inputs.
        edges: whether the means of in-edges' features are inputs.
        learned: number of learned columns, with a row for each node.
        labels: whether labels of training nodes are inputs, with a column for each class.
    """

    file: bool = True
    degree: bool = False
    edges: bool = False
    learned: int = 0
    labels: bool = False

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
        return self.labels or self.learned > 0

    def columns(self, num_features: int, num_edge_features: int, classes: int) -> int:
        """How many there are in all."""
        return self.fixed(num_features, num_edge_features) + self.learned + classes * self.labels


def inputs_text(options: TaskConfig) -> str:
    """Return the inputs that the options select, as a text that `inputs_of` reads."""
    return options.features + LABELS * (options.label_reuse > 0)


def inputs_of(text: str) -> Inputs:
    """The Inputs of a text of `inputs_text`. Raises ConfigError."""
    labels, text = text.endswith(LABELS), text.removesuffix(LABELS)
    if text == "none":
        return Inputs(file=False, labels=labels)
    parts = [_PART.fullmatch(part) for part in text.split("+")]
    given = {part[1]: int(part[2] or 0) for part in parts if part}
    learned = given.get("learned", 0)
    too_narrow = "learned" in given and learned == 0
    if not all(parts) or len(given) < len(parts) or too_narrow or learned > _WIDEST:
        raise ConfigError(
            f"--features: expected file, none, degree, edges, learned:D with D from 1 to {_WIDEST}, or several of "
            f"file, degree, edges and learned:D joined by +, such as file+learned:32, got {text!r}"
        )
    return Inputs("file" in given, "degree" in given, "edges" in given, learned, labels)
