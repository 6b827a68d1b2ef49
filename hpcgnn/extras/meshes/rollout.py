"""`hpcgnn rollout`: forecasts of a trained run, as arrays (times, nodes, columns) in the original order of nodes."""

import argparse
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tabulate import tabulate

from hpcgnn.cli.arguments import RANK_OPTIONS, add_declared
from hpcgnn.cli.commands import Commands, on_ranks
from hpcgnn.cli.trained_runs import add_run, config_of_run
from hpcgnn.comm.session import Session
from hpcgnn.config import Choices, Config
from hpcgnn.errors import ConfigError, RunDirError
from hpcgnn.extras.meshes.options import FIELDS
from hpcgnn.extras.meshes.pictures import draw_errors, write_xdmf
from hpcgnn.graphfile.field_series import name_of_field
from hpcgnn.graphfile.hdf5 import create_dataset, replacing, write_attributes, written_file
from hpcgnn.graphfile.original_order import OriginalOrder
from hpcgnn.records import shown_number
from hpcgnn.terminal import tell

ROLLOUT = """\
Write the forecasts of a run of `--task fields`: its model steps from one snapshot on, each step from the fields that
the one before has predicted. Exact, on any number of ranks:

    mpiexec -n 4 hpcgnn rollout runs/heat --start 80 --steps 20 -o forecast.h5

The file has /time (K,) and /snapshots/FIELD (K, n, F) in the fields' units, with nodes in their original order, and
/position where the graph has it. FILE.xdmf beside it, which ParaView and VisIt open, then names these arrays.
Nodes whose values are given, and fields that are no targets, are read from the snapshots, as far as these go."""


@dataclass(frozen=True)
class RolloutRequest:
    """The request of `hpcgnn rollout`. start: place of the last snapshot that the model sees, or None."""

    output: str
    start: int | None
    steps: int
    force: bool = False


def add_rollout(commands: Commands, choices: Choices) -> None:
    """`hpcgnn rollout`."""
    command = commands.add_parser(
        "rollout",
        allow_abbrev=False,
        help="forecasts of a trained run of fields, over many times",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=ROLLOUT,
    )
    add_run(command)
    command.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write: .h5")
    said = "place of the last snapshot that the model sees (default: the first possible one)"
    command.add_argument("--start", type=int, metavar="T", help=said)
    command.add_argument("--steps", dest="forecasts", type=int, metavar="K", default=1, help="steps (default: 1)")
    command.add_argument("--force", action="store_true", help="replace the file if it exists")
    add_declared(
        command, ("graph", "plugin", "partition", "halo_buffer", "threads", "watchdog", *RANK_OPTIONS), choices
    )
    command.set_defaults(process=process_rollout)


def process_rollout(arguments: argparse.Namespace, choices: Choices) -> int:
    """Roll out a run."""
    request = RolloutRequest(arguments.output, arguments.start, arguments.forecasts, arguments.force)
    if Path(request.output).suffix.lower() not in (".h5", ".hdf5"):
        raise RunDirError(f"--output {request.output}: expected a name that ends with .h5 or .hdf5")
    config = config_of_run(arguments, choices)
    if config.task.task != FIELDS:
        raise ConfigError(
            f"{arguments.run_dir} is a run of --task {config.task.task}, expected one of --task {FIELDS}; for it there "
            "is `hpcgnn predict`"
        )
    return on_ranks(lambda session: roll_out(config, session, arguments.weights, request), config)


def roll_out(config: Config, session: Session, weights: str, request: RolloutRequest) -> int:
    """Write the forecasts of the newest checkpoint of config.run.run_dir. Collective. Returns the exit code 0."""
    from hpcgnn.app.loaded_model import load_trained
    from hpcgnn.engine.rundir import start_logging
    from hpcgnn.extras.meshes.evaluator import FieldsEvaluator
    from hpcgnn.outputs.files import check_results, files_read

    comm = session.comm
    start_logging(comm.rank)
    with comm.together("looking where forecasts go", on_one=True):
        check_results("--output", request.output, comm, files_read(config), request.force)
    trained = load_trained(config, session, weights, other_graph=True)
    evaluator = trained.trainer.evaluator
    assert isinstance(evaluator, FieldsEvaluator), "the task is fields"
    run: Any = trained.logits()[0]
    local, errors = trained.trainer.local, dict[float, dict[str, float]]()
    with contextlib.ExitStack() as until_whole:
        file = None
        if comm.rank == 0:
            file, check = until_whole.enter_context(written_file(until_whole.enter_context(replacing(request.output))))
            write_attributes(file, **trained.origin())
            create_dataset(file, "time", (request.steps,), np.dtype(np.float64))

        def write(rows: Mapping[str, torch.Tensor], *place: int) -> None:
            """Write rows of all ranks at a place before that of the nodes. Collective."""
            order = OriginalOrder(rows, local.original_id, local.num_nodes, comm)
            if file is None:
                order.hand_over()
                return
            for name, width in order.widths.items():
                if name not in file:
                    before = (request.steps,) * len(place)
                    shape = *before, local.num_nodes, width
                    create_dataset(file, name, shape, order.dtypes[name], axis=len(place))
            for nodes, slab in order.slabs():
                for name, part in slab.items():
                    file[name][(*place, slice(nodes[0], nodes[-1] + 1))] = part
                check()

        if local.position is not None:
            write({"position": local.position})
        for step, forecast in enumerate(evaluator.forecasts(run, request.start, request.steps)):
            write({name_of_field(name): rows for name, rows in forecast.fields.items()}, step)
            if forecast.rmse is not None:
                errors[forecast.time] = forecast.rmse
            if file is not None:
                file["time"][step] = forecast.time
    if comm.rank == 0:
        _finish(request, errors)
    comm.barrier()
    return 0


def _finish(request: RolloutRequest, errors: Mapping[float, Mapping[str, float]]) -> None:
    """Write the XDMF file and the picture beside the forecasts, and tell their errors."""
    path = Path(request.output)
    written = [path, *write_xdmf(path), *draw_errors(path, errors)]
    if errors:
        rows = [[f"{time:g}", *map(shown_number, each.values())] for time, each in errors.items()]
        first = next(iter(errors.values()))
        tell(tabulate(rows[-1:], ["RMSE at time", *first], tablefmt="rounded_outline", disable_numparse=True))
    tell(f"forecasts in {', '.join(map(str, written))}")
