"""The command `estimate`."""

import argparse
from typing import Any

from hpcgnn.cli.arguments import add_sections, add_trust, given_options, preset_of, rank_counts
from hpcgnn.cli.trained_runs import config_of_run
from hpcgnn.config import Choices, make_config, read_toml
from hpcgnn.errors import ConfigError
from hpcgnn.estimate.arguments import add_estimate


def add_estimates(commands: Any, choices: Choices | None) -> None:
    """Add `hpcgnn estimate`."""
    estimate = commands.add_parser(
        "estimate", allow_abbrev=False, help="memory, messages and time of a job on any number of ranks"
    )
    add_estimate(estimate, rank_counts)
    estimate.add_argument("--config", metavar="FILE.toml", help="options from this file, as for `hpcgnn train`")
    add_trust(estimate)
    add_sections(estimate, choices)
    estimate.set_defaults(process=process_estimate)


def process_estimate(arguments: argparse.Namespace, choices: Choices) -> int:
    """Estimate a job."""
    from hpcgnn.estimate.command import estimate

    filed, typed = read_toml(arguments.config) if arguments.config else {}, given_options(arguments)
    given = {**preset_of(arguments)[0], **filed, **typed}
    if arguments.stats and typed.get("graph"):
        raise ConfigError("expected --graph or --stats, got both; leave one out")
    if arguments.stats:
        given["graph"] = "--stats"
    config, like = make_config(given, choices, arguments.config or "the command line"), None
    if arguments.like:
        like = config_of_run(argparse.Namespace(run_dir=arguments.like, trust_run=arguments.trust_run), choices)
    return estimate(config, arguments, like)
