"""The commands `estimate` and `bench`."""

import argparse
from typing import Any

from hpcgnn.cli.arguments import (
    RANK_OPTIONS,
    add_declared,
    add_sections,
    add_trust,
    given_options,
    means_of,
    preset_of,
    rank_counts,
)
from hpcgnn.config import Choices, make_config, read_toml
from hpcgnn.errors import ConfigError
from hpcgnn.estimate.arguments import add_bench, add_estimate


def add_estimates(commands: Any, choices: Choices | None) -> None:
    """Add `hpcgnn estimate` and `hpcgnn bench`."""
    estimate = commands.add_parser(
        "estimate", allow_abbrev=False, help="memory, messages and time of a job on any number of ranks"
    )
    add_estimate(estimate, rank_counts)
    estimate.add_argument("--config", metavar="FILE.toml", help="options from this file, as for `hpcgnn train`")
    add_trust(estimate)
    add_sections(estimate, choices)
    estimate.set_defaults(process=process_estimate)
    bench = commands.add_parser("bench", allow_abbrev=False, help="measure a machine for estimates")
    add_bench(bench)
    add_declared(bench, RANK_OPTIONS, choices)
    bench.set_defaults(process=process_bench)


def process_estimate(arguments: argparse.Namespace, choices: Choices) -> int:
    """Estimate a job."""
    from hpcgnn.estimate.command import estimate

    filed, typed = read_toml(arguments.config) if arguments.config else {}, given_options(arguments)
    given = {**preset_of(arguments)[0], **filed, **typed}
    if arguments.stats and typed.get("graph"):
        raise ConfigError("expected --graph or --stats, got both; leave one out")
    if arguments.stats:
        given["graph"] = "--stats"
    return estimate(make_config(given, choices, arguments.config or "the command line"), arguments, choices)


def process_bench(arguments: argparse.Namespace, choices: Choices) -> int:
    """Measure the machine on the ranks of the launcher."""
    from hpcgnn.comm.launch.run import run
    from hpcgnn.estimate.machine.bench import bench
    from hpcgnn.estimate.machine.comm_bench import bench_comm

    means = means_of(vars(arguments))
    if arguments.what == "comm":
        return run(lambda session: bench_comm(session, choices, arguments), means=means)
    if not arguments.output:
        raise ConfigError("bench machine needs -o FILE.toml, the machine file to be written")
    return run(lambda session: bench(session, choices, arguments), means=means)
