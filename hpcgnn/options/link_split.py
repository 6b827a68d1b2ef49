"""Values of `--link-split`: the graph file's own held-out edges, or randomly drawn shares of its edges."""

import math

from hpcgnn.errors import ConfigError

#: The graph file's own held-out edges; and these if the file has any, else drawn shares.
GIVEN, AUTO = "given", "auto"
#: The default shares, and the shares that hold nothing out.
USUAL, NOTHING = "0.9/0.05/0.05", "1/0/0"


def check_link_split(text: str) -> None:
    """Raise ConfigError if `--link-split` has an invalid value."""
    if text not in (AUTO, GIVEN):
        link_shares(text)


def link_shares(text: str) -> tuple[float, float, float]:
    """(training, validation, test), which sum to 1, of `0.9/0.05/0.05`. Raises ConfigError."""
    try:
        train, val, test = (float(part) for part in text.split("/"))
    except ValueError:
        train = val = test = math.nan
    if not (0 < train <= 1 and val >= 0 and test >= 0 and math.isclose(train + val + test, 1, abs_tol=1e-6)):
        raise ConfigError(
            "--link-split: expected three shares that sum to 1, of training (above 0), validation and test, such as "
            f"{USUAL}, or {GIVEN} or {AUTO}, got {text!r}"
        )
    return train, val, test
