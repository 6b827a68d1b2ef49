#!/usr/bin/env python3
"""What an epoch costs that no further thread makes shorter, counted on any machine: two cores suffice.

    python jobs/bench/threads.py messages                    posting the messages of 1,023 peers
    python jobs/bench/threads.py messages --peers 127        of fewer

Figures are processor time of a thread, calls and bytes, never wall time: they hold on a machine that is busy with other
things, too.
"""

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))
from hpcgnn.__main__ import set_process_policies  # noqa: E402

set_process_policies()

#: Modules of `threads_`, each a sub-command of its name.
QUESTIONS = ("messages",)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(metavar="question", required=True)
    for name in QUESTIONS:
        module = importlib.import_module(f"threads_.{name}")
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_options(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
