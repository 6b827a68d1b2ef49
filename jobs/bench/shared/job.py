"""Benchmarks in a job of their own, with the configuration of the work that is compared with peers."""

import sys

from hpcgnn.__main__ import build_parser, registry_choices
from hpcgnn.cli.arguments import given_options, preset_of
from hpcgnn.comm.launch.launcher import launched_rank
from hpcgnn.comm.launch.run import run
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError, HpcgnnError
from hpcgnn.nn.plugin import load_plugin

HEAD_WIDTH, WIDTH = 64, 256


def run_benchmark(name, measure, graph, model, more, threads):
    """Call measure(session, config) on all ranks with `usual_config`; the exit code, 2 with one line for a user's
    mistake.
    """
    try:
        config = usual_config(graph, model, more)
    except HpcgnnError as error:
        if launched_rank() == 0:
            print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    return run(lambda session: measure(session, config), threads, watchdog=config.run.watchdog)


def usual_config(graph, model, more=()):
    """The Config of the work that is compared with peers (three layers, no dropout, no evaluation), with options of
    `hpcgnn train` in `more` that override it. Raises ConfigError.
    """
    more = list(map(str, more))
    if "--plugin" in more:  # its models are choices of --model
        load_plugin(more[more.index("--plugin") + 1])
    choices = registry_choices()
    options = ["--graph", graph, "--model", model, "--layers", 3, "--hidden", HEAD_WIDTH if model == "gat" else WIDTH]
    options += ["--dropout", 0, "--eval-every", 0, "--auto-partition", *more]
    given, unknown = build_parser(choices).parse_known_args(["train", *map(str, options)])
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]}; expected options of `hpcgnn train` after --")
    return make_config({**preset_of(given)[0], **given_options(given)}, choices)
