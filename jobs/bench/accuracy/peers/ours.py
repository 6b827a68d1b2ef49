"""hpcgnn with several learning rates, one run after another in one job: imports would take most of a small run's time.

python ours.py RUN_DIR RATE,RATE options of `hpcgnn train`      the run directories are RUN_DIR-RATE
"""

import sys

from hpcgnn.__main__ import build_parser, registry_choices, set_process_policies
from hpcgnn.cli.arguments import read_options
from hpcgnn.comm.run import run
from hpcgnn.config import make_config


def main():
    set_process_policies()
    sys.modules["matplotlib"] = None  # no pictures of the runs
    from hpcgnn.app.train import train

    place, rates, *options = sys.argv[1:]
    choices = registry_choices()
    arguments = build_parser(choices).parse_args(["train", *options])
    given = read_options(arguments)[0]
    configs = [
        make_config({**given, "lr": float(rate), "run_dir": f"{place}-{rate}"}, choices) for rate in rates.split(",")
    ]
    return run(lambda session: max(train(config, session) for config in configs), configs[0].run.threads)


if __name__ == "__main__":
    sys.exit(main())
