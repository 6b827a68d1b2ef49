"""The options of a memory limit."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.option_fields import option
from hpcgnn.options.run import RunConfig
from hpcgnn.plan.rules import schedules_with
from hpcgnn.plan.run_plan import RunPlan

#: The memory that the machine or the job leaves; no limit ('' in run directories of earlier versions).
AUTO, NO_LIMIT = "auto", "none"
#: Kinds of the ledger: bytes written to and read from the scratch file.
WRITTEN, READ = "scratch_written", "scratch_read"


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


@dataclass(frozen=True, kw_only=True)
class OffloadConfig(RunConfig):
    memory: str = option(
        AUTO,
        "memory of a node's ranks, such as 48G, auto, or none",
        details="Activations and features that do not fit go to a scratch file; results stay the same "
        "(docs/less-memory.md).",
        flag=True,
        check=said_memory,
    )
    scratch: str = option(
        "",
        "local directory for --memory (default: $TMPDIR, or /tmp)",
    )


def options_of(config: Config) -> OffloadConfig:
    """The section with these options."""
    return cast(OffloadConfig, config.run)


def has_limit(config: Config) -> bool:
    """Whether the user gives a limit."""
    return said_memory(options_of(config).memory) is not None


def schedules_of_a_limit(of: RunPlan) -> Iterator[str]:
    """A rule: the limit needs a schedule that keeps no rows of other ranks."""
    if has_limit(of.config) and not of.schedule.within_memory:
        able = schedules_with(lambda traits: traits.within_memory).replace(" or ", " and ")
        yield (
            f"--memory is for --schedule {able}, got {of.config.schedule.schedule}, which keeps rows of other ranks "
            "from step to step; leave one of them out"
        )
