"""What `--features` says: which columns nodes have as input, of the file, of their degree, or learned."""

import re
from dataclasses import dataclass

from hpcgnn.errors import ConfigError

_WIDEST = 1 << 16
# A word, and after `learned` a width.
_PART = re.compile("(file|degree|learned)(?:(?<=learned):([0-9]{1,5}))?")


@dataclass(frozen=True)
class Inputs:
    """file: the columns of the graph file; degree: 1 and log(1 + in-degree); learned: how many columns are learned, a
    row for each node. Without any of them there is one column, of ones.
    """

    file: bool = True
    degree: bool = False
    learned: int = 0

    def fixed(self, num_features: int) -> int:
        """How many columns do not change. num_features: of the file."""
        return num_features * self.file + self.ones + self.degree

    @property
    def ones(self) -> bool:
        """Whether one of them is of ones."""
        return self.degree or not (self.file or self.learned)


def inputs_of(text: str) -> Inputs:
    """The Inputs that `--features text` asks for. Raises ConfigError."""
    if text == "none":
        return Inputs(file=False)
    parts = [_PART.fullmatch(part) for part in text.split("+")]
    given = {part[1]: int(part[2] or 0) for part in parts if part}
    learned = given.get("learned", 0)
    too_narrow = "learned" in given and learned == 0
    if not all(parts) or len(given) < len(parts) or too_narrow or learned > _WIDEST:
        raise ConfigError(
            f"--features: expected file, none, degree, learned:D with D from 1 to {_WIDEST}, or several of file, "
            f"degree and learned:D joined by +, such as file+learned:32, got {text!r}"
        )
    return Inputs("file" in given, "degree" in given, learned)
