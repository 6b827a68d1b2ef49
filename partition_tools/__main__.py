"""The entry of `python -m partition_tools`. A batch system's request to end is taken like a person's: half-written
files go.
"""

import signal
import sys
from types import FrameType
from typing import NoReturn

from hpcgnn import interruption

if __name__ == "__main__":
    interruption.end_at_once("partition_tools")

from partition_tools.cli.main import main


def interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """A signal as the exception that every `finally` sees."""
    raise KeyboardInterrupt


def run(argv: list[str] | None = None) -> int:
    """`main`, to be ended in order by SIGTERM as well."""
    interruption.end_in_order()
    signal.signal(signal.SIGTERM, interrupted)
    return main(argv)


if __name__ == "__main__":
    sys.exit(run())
