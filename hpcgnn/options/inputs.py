"""What `--features` says: which columns nodes have as input, of the file, of their degree, or learned."""

from dataclasses import dataclass

from hpcgnn.errors import ConfigError

_WIDEST = 1 << 16


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
        if not (self.file or self.degree or self.learned):
            return 1
        return (num_features if self.file else 0) + (2 if self.degree else 0)


def inputs_of(text: str) -> Inputs:
    """The Inputs that `--features text` asks for. Raises ConfigError."""
    parts = text.split("+")
    words = [part.partition(":")[0] for part in parts]
    widths = [part.partition(":")[2] for part in parts if part.startswith("learned:")]
    if text == "none":
        return Inputs(file=False)
    right = set(words) <= {"file", "degree", "learned"} and len(set(words)) == len(words)
    right = right and all(part == word for part, word in zip(parts, words) if word != "learned")
    if not right or len(widths) != ("learned" in words) or not all(_is_width(width) for width in widths):
        raise ConfigError(
            f"--features: expected file, none, degree, learned:D with D from 1 to {_WIDEST}, or several of file, "
            f"degree and learned:D joined by +, such as file+learned:32, got {text!r}"
        )
    return Inputs("file" in words, "degree" in words, int(widths[0]) if widths else 0)


def _is_width(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= _WIDEST
