"""The memory that a tool may take: the user's --memory, else a part of the free memory of the machine or job."""

import os
import re

from hpcgnn.errors import ConfigError
from hpcgnn.memory.resident import group_limits, machine_available

SHARE = 0.5
SMALLEST, MOST = 64 << 20, 1 << 50
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_memory(text: str) -> int:
    """Bytes of "8G", "512M", "1.5T" or a plain number of bytes. Raises ConfigError."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if not found:
        raise ConfigError(f"expected a size such as 8G or 512M, got {text!r}")
    size = float(found[1]) * _UNITS[found[2].upper()]
    if not SMALLEST <= size < MOST:
        raise ConfigError(f"expected from {SMALLEST >> 20}M to {MOST >> 40}T of memory, got {text[:40]!r}")
    return int(size)


def available_memory() -> int:
    """Bytes that this process may still take: of the machine, of its control group and of its SLURM job, the least."""
    found = [machine_available(), *group_limits()]
    per_node = os.environ.get("SLURM_MEM_PER_NODE", "")
    if per_node.isdigit() and int(per_node) > 0:  # 0: all of the node's
        found.append(int(per_node) << 20)
    return min(found)


def memory_budget(said: int | None) -> int:
    """Bytes to work in: `--memory` (None: SHARE of the available memory)."""
    return max(int(SHARE * available_memory()), SMALLEST) if said is None else said
