"""Writes the file that ranks start from: `python -m hpcgnn.startup`, after an installation (`bytecode.py` says why)."""

import sys

from hpcgnn import bytecode
from hpcgnn.__main__ import load, set_process_policies


def main() -> int:
    """Import what a training imports, and write its code. Returns the exit code."""
    set_process_policies(from_one_file=False)
    load([])

    try:
        count = bytecode.write()
    except OSError as error:
        print(
            f"hpcgnn.startup: error: cannot write {bytecode.FILE}: {error.strerror}; run it as the owner of the "
            "installation",
            file=sys.stderr,
        )
        return 2
    print(f"{count:,} modules in {bytecode.FILE} ({bytecode.FILE.stat().st_size / 2**20:.0f} MiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
