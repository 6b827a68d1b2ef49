"""The entry of `python -m partition_tools`. A batch system's request to end is taken like a person's: half-written
files go.
"""

import signal
import sys

from partition_tools.cli import main


def interrupted(number, frame):
    """A signal as the exception that every `finally` sees."""
    raise KeyboardInterrupt


def run(argv=None):
    """`main`, to be ended in order by SIGTERM as well."""
    signal.signal(signal.SIGTERM, interrupted)
    return main(argv)


if __name__ == "__main__":
    sys.exit(run())
