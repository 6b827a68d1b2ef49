"""A parallel job that trains all runs of a number of ranks one after the other, since loading torch takes the time.

python make_runs.py FOLDER '[[name, {option: value}], …]'
"""

import json
import sys

from hpcgnn.__main__ import registry_choices, set_process_policies
from hpcgnn.comm.run import run
from hpcgnn.config import make_config


def main():
    set_process_policies()
    from hpcgnn.app.train import train

    folder, runs = sys.argv[1], json.loads(sys.argv[2])
    configs = [make_config({**options, "run_dir": f"{folder}/{name}"}, registry_choices()) for name, options in runs]
    return run(lambda session: max(train(config, session) for config in configs))


if __name__ == "__main__":
    sys.exit(main())
