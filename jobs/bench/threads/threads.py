#!/usr/bin/env python3
"""What many threads and ranks cost, counted on any machine: two cores suffice, for nothing here is wall time.

    python jobs/bench/threads/threads.py messages        posting the messages of 1,023 peers

Each sub-command is a question of its own, in a module of questions/.
"""

import argparse
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parents[2])]  # shared parts, this checkout
from hpcgnn.__main__ import set_process_policies

set_process_policies()


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    questions = parser.add_subparsers(dest="question", required=True)
    for path in sorted((HERE / "questions").glob("[a-z]*.py")):
        module = importlib.import_module(f"questions.{path.stem}")
        text = module.__doc__ or ""
        one = questions.add_parser(
            path.stem, help=text.splitlines()[0], description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.configure(one)
        one.set_defaults(run=module.run)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
