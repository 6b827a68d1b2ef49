"""A Trainer as `hpcgnn train` makes it, for benchmarks that look into single epochs: no run directory, no
checkpoints.
"""

import sys

from hpcgnn.__main__ import build_parser, registry_choices
from hpcgnn.app.bring_up import bring_up
from hpcgnn.comm.launch.launcher import launched_rank
from hpcgnn.comm.launch.run import run
from hpcgnn.config import SECTION_OF, make_config
from hpcgnn.engine.clock import unwatched
from hpcgnn.engine.trainer import Trainer
from hpcgnn.errors import ConfigError, HpcgnnError
from hpcgnn.nn.plugin import load_plugin
from hpcgnn.plugins.registry import make_plugins

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
    values = {key: value for key, value in vars(given).items() if key in SECTION_OF and value is not None}
    return make_config(values, choices)


def make_trainer(config, session, watch=unwatched):
    """(Trainer, the resolved Config, a description of the graph and its map). Collective. Raises HpcgnnError.

    watch: told of the phases of an epoch (see hpcgnn/engine/clock.py).
    """
    with bring_up(config, session) as ready:
        file = ready.graph.file
        about = {"graph": str(file.path), "uuid": file.meta.uuid, "map": ready.graph.map_name}
        about |= {"nodes": file.meta.num_nodes, "edges": file.meta.num_edges}
        local = ready.load()
    return Trainer(local, ready.plan, session.comm, ready.buffers, make_plugins, watch), ready.plan.config, about
