"""What many threads and ranks cost, counted on any machine: two cores suffice, for nothing here is wall time.

Each sub-command is a question of its own, in a module of threads_questions/.
"""

import argparse
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(1, str(HERE.parents[1]))


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    questions = parser.add_subparsers(dest="question", required=True)
    for path in sorted((HERE / "threads_questions").glob("[a-z]*.py")):
        module = importlib.import_module(f"threads_questions.{path.stem}")
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
