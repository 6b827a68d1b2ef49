"""The commands `evaluate` and `predict`, which use a trained run on a graph: their parsers and calls.

The called functions import torch, so that `--help` stays fast.
"""

import argparse

from hpcgnn.app.corrections import CORRECTIONS, TABLES, add_options, asked
from hpcgnn.cli.arguments import RANK_OPTIONS, add_declared, add_dry_run, add_trust, dry_run, given_options
from hpcgnn.cli.commands import Commands, on_ranks
from hpcgnn.config import Choices, Config, make_config

#: Options of the configuration that the use of a run may choose anew; all others are the run's.
OPTIONS = ["graph", "plugin", "partition", "halo_buffer", "threads", "metric", "watchdog"]
OPTIONS += RANK_OPTIONS

PREDICT = """\
Write the predictions of a run's newest checkpoint for each node: classes or numbers, and by option probabilities,
logits or the hidden state of a layer. Exact, on any number of ranks, on the run's graph or on another one with the same
features:

    mpiexec -n 4 hpcgnn predict runs/first -o predictions.csv
    mpiexec -n 4 hpcgnn predict runs/first --graph new.h5 --probabilities --nodes some.txt -o new.csv
    hpcgnn predict runs/first --embeddings 1 -o hidden.h5

Rows are in the original order of the nodes, with their numbers and the ids of the imported tables."""


def add_evaluate(commands: Commands, choices: Choices) -> None:
    """`hpcgnn evaluate`."""
    evaluate = commands.add_parser(
        "evaluate",
        help="metrics of a trained run",
        description="Evaluate the newest checkpoint of a run exactly, on any number of ranks.\nWrites "
        "evaluation.json into RUN_DIR.",
    )
    add_run(evaluate)
    add_options(evaluate, CORRECTIONS)
    _add_own_options(evaluate, choices)
    evaluate.set_defaults(process=process_evaluate)


def add_predict(commands: Commands, choices: Choices) -> None:
    """`hpcgnn predict`."""
    predict = commands.add_parser(
        "predict", help="predictions of a trained run, as a table or arrays", description=PREDICT
    )
    add_run(predict)
    predict.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="the file to write: .h5 (arrays) or .csv (a table)",
    )
    predict.add_argument(
        "--probabilities",
        action="store_true",
        help="also the probability of each class or label (of regression there is none)",
    )
    predict.add_argument("--logits", action="store_true", help="also the model's output before softmax or sigmoid")
    predict.add_argument(
        "--embeddings",
        metavar="LAYER",
        type=int,
        default=0,
        help="also the hidden state after this layer, from 1 on: after norm and activation",
    )
    predict.add_argument(
        "--nodes",
        metavar="FILE",
        default="",
        help="rows of these nodes alone: a text file with an id in each line (a node's number where the graph has no "
        "ids); rows come in the original order all the same",
    )
    add_options(predict, TABLES)
    predict.add_argument("--force", action="store_true", help="replace the file if it exists")
    add_options(predict, CORRECTIONS)
    _add_own_options(predict, choices)
    predict.set_defaults(process=process_predict)


def add_run(command: argparse.ArgumentParser) -> None:
    """The run, and which of its weights."""
    command.add_argument("run_dir", metavar="RUN_DIR", help="run directory of `hpcgnn train`")
    command.add_argument(
        "--weights", choices=("best", "last"), default="best", help="of the best validation, or the last"
    )
    add_trust(command)


def _add_own_options(command: argparse.ArgumentParser, choices: Choices) -> None:
    add_dry_run(command)
    add_declared(command, OPTIONS, choices)


def config_of_run(arguments: argparse.Namespace, choices: Choices) -> Config:
    """The configuration of a run, with the options that were given."""
    from hpcgnn.app.resuming import load_plugin_of_run, options_of_run

    if not vars(arguments).get("plugin"):  # one on the command line is loaded already
        choices = load_plugin_of_run(arguments.run_dir, choices, arguments.trust_run)
    return make_config(options_of_run(arguments.run_dir, given_options(arguments)), choices, arguments.run_dir)


def process_evaluate(arguments: argparse.Namespace, choices: Choices) -> int:
    """Evaluate a run."""
    from hpcgnn.app.evaluate import evaluate

    config, corrections = config_of_run(arguments, choices), asked(arguments, CORRECTIONS)
    for correction in corrections:
        correction.check(config.task.task)
    if arguments.dry_run is not None:
        from hpcgnn.app.dry_run import check_use

        return dry_run(arguments.dry_run, lambda: check_use(config, arguments.dry_run))
    return on_ranks(lambda session: evaluate(config, session, arguments.weights, corrections), config)


def process_predict(arguments: argparse.Namespace, choices: Choices) -> int:
    """Predict with a run."""
    from hpcgnn.app.predict import PredictRequest, predict
    from hpcgnn.outputs.files import check_name

    request = PredictRequest(
        arguments.output,
        arguments.force,
        arguments.probabilities,
        arguments.logits,
        arguments.embeddings,
        arguments.nodes,
        arguments.graph is not None,
        asked(arguments, CORRECTIONS),
        next(iter(asked(arguments, TABLES)), None),
    )
    check_name("--output", request.output)
    config = config_of_run(arguments, choices)
    request.check(config)
    if arguments.dry_run is not None:
        from hpcgnn.app.dry_run import check_use

        return dry_run(arguments.dry_run, lambda: check_use(config, arguments.dry_run, request))
    return on_ranks(lambda session: predict(config, session, arguments.weights, request), config)
