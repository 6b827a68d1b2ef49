"""The text of a machine file."""

import re
from collections.abc import Mapping
from typing import Any

import tomli_w

# An array without arrays in it, an item on each line.
_INNERMOST = re.compile(r"\[\n([^\[\]]*)\n *\]")


def toml_text(values: Mapping[str, Any]) -> str:
    """Return TOML with a line for each rate, and for each other array of numbers."""

    def line(found: re.Match[str]) -> str:
        return f"[{', '.join(item.strip().rstrip(',') for item in found[1].splitlines())}]"

    return _INNERMOST.sub(line, tomli_w.dumps(values))
