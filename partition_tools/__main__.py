"""The entry of `python -m partition_tools`."""

import sys

from partition_tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
