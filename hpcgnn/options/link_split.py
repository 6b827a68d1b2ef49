"""The values of `--link-split`: held-out edges that come with the graph, or random shares of its edges."""

import math

from hpcgnn.errors import ConfigError

#: What comes with the graph file; and that where there is any, else drawn shares.
GIVEN, AUTO = "given", "auto"
#: The shares where nothing is said, and those that hold nothing out.
USUAL, NOTHING = "0.9/0.05/0.05", "1/0/0"


def check_link_split(text: str) -> None:
    """Raise ConfigError for an invalid value of `--link-split`."""
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
