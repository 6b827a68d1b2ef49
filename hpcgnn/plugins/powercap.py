"""The kernel's energy counters, files of the powercap tree, for Intel's and AMD's processors alike.

Each domain is a folder `intel-rapl:…` with a `name` and `energy_uj`, a counter in microjoules. The counter wraps to 0
after `max_energy_range_uj`, which takes minutes on a busy node. So a longer measurement has to read it every
`seconds_between_looks`.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path("/sys/class/powercap")
# No package draws more. A counter that has had the time to come round at this power may have done so more than once.
MOST_WATTS = 1000.0
HOW_TO_READ = (
    "ask the administrator to let a group of yours read it (`chgrp`, `chmod g+r`), or for SLURM's energy accounting"
)


class NotAvailable(Exception):
    """Why there is no energy to tell; completes 'not available, because …'."""


class Domain:
    """An energy counter.

    Attributes:
        kind: 'package', 'dram' or 'psys'.
        joules: energy since the Domain was made.

    Args:
        now: clock, in seconds.

    Raises:
        NotAvailable: the counter cannot be read.
    """

    def __init__(self, folder: Path, kind: str, now: Callable[[], float] = time.monotonic) -> None:
        self.kind, self._file, self._now = kind, folder / "energy_uj", now
        self._range = _number(folder / "max_energy_range_uj")
        if self._range <= 0:
            raise NotAvailable(f"{folder}/max_energy_range_uj does not say when the counter begins again")
        self.joules = 0.0
        self._last, self._seen = _number(self._file), now()

    @property
    def seconds_between_looks(self) -> float:
        """Half of the time that the counter needs at the least to come round."""
        return self._range / 1e6 / MOST_WATTS / 2

    def look(self) -> None:
        """Add the energy since the last look. Raises NotAvailable if the counter may have wrapped more than once."""
        value, seen = _number(self._file), self._now()
        if (seen - self._seen) * MOST_WATTS * 1e6 >= self._range:
            raise NotAvailable(
                f"{self._file} was not read for {seen - self._seen:.0f} s and may have come round more than once"
            )
        # The kernel's range is the largest value, after which comes 0.
        self.joules += ((value - self._last) % (self._range + 1)) / 1e6
        self._last, self._seen = value, seen


def find_domains(root: Path = ROOT, now: Callable[[], float] = time.monotonic) -> list[Domain]:
    """Return the domains of this machine that do not overlap.

    These are all packages, and their memory if it has counters of its own. `psys`, the whole platform, contains both
    and is used only without packages. Cores and graphics are part of their package. `intel-rapl-mmio:…` shows packages
    a second time.

    Args:
        root: folder of the powercap tree.
        now: clock, in seconds.

    Raises:
        NotAvailable: there are no readable counters.
    """
    kinds: dict[str, list[Path]] = {"package": [], "dram": [], "psys": []}
    for folder in sorted(root.glob("intel-rapl:*")):
        try:
            name = (folder / "name").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NotAvailable(f"{folder}/name cannot be read ({_why(error)})") from error
        kind = re.sub(r"-\d+(-die-\d+)?$", "", name)
        if kind in kinds:
            kinds[kind].append(folder)
    used = ("package", "dram") if kinds["package"] else ("psys",)
    found = [Domain(folder, kind, now) for kind in used for folder in kinds[kind]]
    if not found:
        raise NotAvailable(
            f"{root} has no counters intel-rapl:… (a virtual machine, or a kernel without intel_rapl)"
            if root.is_dir()
            else f"there is no {root} (a virtual machine, or a kernel without powercap)"
        )
    return found


def _number(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii"))
    except PermissionError as error:
        raise NotAvailable(
            f"only root may read {file} (as kernels have it since CVE-2020-8694); {HOW_TO_READ}"
        ) from error
    except (OSError, ValueError) as error:
        raise NotAvailable(f"{file} cannot be read ({_why(error)})") from error


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it holds no number or name"
