"""What `--link-split` says: which shares of the edges are for training, for validation and for test."""

import math

from hpcgnn.errors import ConfigError


def link_shares(text: str) -> tuple[float, float, float]:
    """(training, validation, test), which sum to 1, of `0.9/0.05/0.05`. Raises ConfigError."""
    try:
        train, val, test = (float(part) for part in text.split("/"))
    except ValueError:
        train = val = test = math.nan
    if not (0 < train <= 1 and val >= 0 and test >= 0 and math.isclose(train + val + test, 1, abs_tol=1e-6)):
        raise ConfigError(
            "--link-split: expected three shares that sum to 1, of training (above 0), validation and test, such as "
            f"0.9/0.05/0.05, got {text!r}"
        )
    return train, val, test
