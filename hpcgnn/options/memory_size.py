"""Values of `--memory`."""

import re

from hpcgnn.errors import ConfigError

#: The memory that the machine or the job leaves; no limit ('' in run directories of earlier versions).
AUTO, NO_LIMIT = "auto", "none"


def said_memory(text: str) -> int | None:
    """Return the bytes of a size such as 48G, 1.5T or 800M, in powers of 1024; None if no size is given.

    Raises ConfigError.
    """
    if text in (AUTO, NO_LIMIT, ""):
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT])i?B?", text.strip(), re.IGNORECASE)
    size = 0 if found is None else int(float(found[1]) * 1024 ** (1 + "KMGT".index(found[2].upper())))
    if size <= 0:
        raise ConfigError(f"--memory: expected a size such as 48G, 1.5T or 800M, {AUTO} or {NO_LIMIT}, got {text!r}")
    return size
