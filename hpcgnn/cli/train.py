"""The command `train`."""

import argparse
from typing import Any

from hpcgnn.cli.arguments import add_dry_run, add_sections, dry_run, read_options
from hpcgnn.cli.commands import on_ranks
from hpcgnn.config import Choices, make_config
from hpcgnn.terminal import tell
from hpcgnn.unused_options import without_effect

DESCRIPTION = """\
Train a model full-batch on a partitioned graph file, on one rank or on several:
    mpiexec -n 4 hpcgnn train --graph graph.h5 --model sage --layers 3 --hidden 256
    srun hpcgnn train --graph graph.h5 --config run.toml --lr 0.003 --set schedule.prune=none"""
EPILOG = """\
The flags above are the ones most used. docs/options.md lists every key. Each is also a key of --config FILE.toml.
`--key VALUE` is short for `--set section.key=VALUE`. The command line overrides the file, the file the preset, and the
preset the config.toml of a resumed run. The log names options without effect."""


def add_train(commands: Any, choices: Choices) -> None:
    """Add `hpcgnn train`."""
    train = commands.add_parser("train", help="train a model on a graph file", description=DESCRIPTION, epilog=EPILOG)
    add_dry_run(train)
    add_sections(train, choices)
    train.set_defaults(process=process_train)


def process_train(arguments: argparse.Namespace, choices: Choices) -> int:
    """Train; the configuration is checked before MPI starts, so that a typing error costs nothing."""
    from hpcgnn.app.resuming import load_plugin_of_run, options_to_continue
    from hpcgnn.app.train import train

    given, filed, typed, notes = read_options(arguments)
    resumed = f"the run {given['run_dir']}" if given.get("resume") and given.get("run_dir") else ""
    if resumed and "plugin" not in given:
        choices = load_plugin_of_run(given["run_dir"], choices, arguments.trust_run)
    saved = options_to_continue(given, arguments.dry_run)
    config = make_config({**saved, **given}, choices, arguments.config or "the command line")
    remark = without_effect(config, typed, {**saved, **filed}, choices)
    remarks = [remark] if remark else []
    if arguments.dry_run is not None:
        from hpcgnn.app.dry_run import check_training

        for note in notes:
            tell(note)
        return dry_run(arguments.dry_run, lambda: check_training(config, arguments.dry_run, remarks))
    return on_ranks(lambda session: train(config, session, remarks, notes), config)
