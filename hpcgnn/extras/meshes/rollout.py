"""`hpcgnn rollout`: forecasts of a trained run, as arrays (times, nodes, columns) in the original order of nodes."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tabulate import tabulate

from hpcgnn.cli.arguments import RANK_OPTIONS, add_declared
from hpcgnn.cli.commands import Commands, on_ranks
from hpcgnn.cli.trained_runs import add_run, config_of_run
from hpcgnn.comm.session import Session
from hpcgnn.config import Choices, Config
from hpcgnn.errors import ConfigError, RunDirError
from hpcgnn.extras.meshes.options import FIELDS
from hpcgnn.extras.meshes.pictures import draw_errors, draw_fields, write_xdmf
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.records import shown_number
from hpcgnn.terminal import tell

if TYPE_CHECKING:
    from hpcgnn.extras.meshes.on_cells import Mesh

ROLLOUT = """\
Write the forecasts of a run of `--task fields`: its model steps from one snapshot on, each step from the fields that
the one before has predicted. Exact, on any number of ranks:

    mpiexec -n 4 hpcgnn rollout runs/heat --start 80 --steps 20 -o forecast.h5

The file has /time (K,) and /snapshots/FIELD (K, n, F) in the fields' units, with nodes in their original order, and
/position where the graph has it. FILE.xdmf beside it, which ParaView and VisIt open, then names these arrays as points.
With --mesh FILE.vtu, from which the graph was imported, FILE.pvd and a .vtu for each time have its cells instead.
Pictures show the error against time, and truth, forecast and error at the last time of the snapshots. Nodes whose
values are given, and fields that are no targets, are read from the snapshots, as far as these go."""


@dataclass(frozen=True)
class RolloutRequest:
    """The request of `hpcgnn rollout`.

    Attributes:
        start: place of the last snapshot that the model sees, or None.
        mesh: a file of the mesh that the graph was imported from, or ''.
        drawn: steps to draw, from 1; the last one of the snapshots if there are none.
    """

    output: str
    start: int | None
    steps: int
    force: bool = False
    mesh: str = ""
    drawn: Sequence[int] = ()


def add_rollout(commands: Commands, choices: Choices) -> None:
    """`hpcgnn rollout`."""
    command = commands.add_parser(
        "rollout", help="forecasts of a trained run of fields, over many times", description=ROLLOUT
    )
    add_run(command)
    command.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write: .h5")
    said = "place of the last snapshot that the model sees (default: the first possible one)"
    command.add_argument("--start", type=int, metavar="T", help=said)
    command.add_argument("--steps", dest="forecasts", type=int, metavar="K", default=1, help="steps (default: 1)")
    said = "the mesh that the graph was imported from, by meshio: write the fields on its cells, as FILE.pvd"
    command.add_argument("--mesh", metavar="MESH", default="", help=said)
    said = "steps to draw beside the truth, as 1,10,100 (default: the last one that the snapshots have)"
    command.add_argument("--draw", metavar="STEPS", default="", help=said)
    command.add_argument("--force", action="store_true", help="replace the file, and those beside it, if they exist")
    add_declared(
        command, ("graph", "plugin", "partition", "halo_buffer", "threads", "watchdog", *RANK_OPTIONS), choices
    )
    command.set_defaults(process=process_rollout)


def process_rollout(arguments: argparse.Namespace, choices: Choices) -> int:
    """Roll out a run."""
    said = arguments.draw.split(",") if arguments.draw else []
    if not all(each.isdecimal() and 0 < int(each) <= arguments.forecasts for each in said):
        raise ConfigError(
            f"--draw {arguments.draw}: expected numbers of steps of 1 … {arguments.forecasts} joined by commas"
        )
    request = RolloutRequest(
        *(arguments.output, arguments.start, arguments.forecasts, arguments.force, arguments.mesh),
        drawn=[int(each) for each in said],
    )
    check_hdf5(request.output)
    config = config_of_run(arguments, choices)
    if config.task.task != FIELDS:
        raise ConfigError(
            f"{arguments.run_dir} is a run of --task {config.task.task}, expected one of --task {FIELDS}; for it there "
            "is `hpcgnn predict`"
        )
    return on_ranks(lambda session: roll_out(config, session, arguments.weights, request), config)


def check_hdf5(output: str) -> None:
    """Raise RunDirError for a name of another format."""
    if Path(output).suffix.lower() not in (".h5", ".hdf5"):
        raise RunDirError(f"--output {output}: expected a name that ends with .h5 or .hdf5")


def roll_out(config: Config, session: Session, weights: str, request: RolloutRequest) -> int:
    """Write the forecasts of the newest checkpoint of config.run.run_dir. Collective. Returns the exit code 0."""
    from hpcgnn.app.loaded_model import load_trained
    from hpcgnn.engine.rundir import start_logging
    from hpcgnn.extras.meshes.evaluator import FieldsEvaluator, JudgedModel
    from hpcgnn.extras.meshes.field_file import field_file
    from hpcgnn.extras.meshes.on_cells import Mesh, names_of_series
    from hpcgnn.output_files import check_outputs
    from hpcgnn.outputs.files import check_results, files_read

    comm = session.comm
    start_logging(comm.rank)
    with comm.together("looking where forecasts go", on_one=True):
        check_results("--output", request.output, comm, [*files_read(config), request.mesh], request.force)
        output = Path(request.output).resolve()
        series = names_of_series(output, request.steps)
        if request.mesh and Path(request.mesh).resolve() in series:
            raise RunDirError(
                f"--mesh {request.mesh} has the name of a file beside --output {request.output}; choose another output"
            )
        beside = [*series, output.with_suffix(".pvd")] if request.mesh else [output.with_suffix(".xdmf")]
        beside += [output.with_suffix(".png"), output.with_name(f"{output.stem}-fields.png")]
        for each in beside if comm.rank == 0 else ():  # others may not see the directory
            check_outputs({"beside --output,": each}, force=request.force)
    trained = load_trained(config, session, weights, other_graph=True)
    evaluator = trained.trainer.evaluator
    assert isinstance(evaluator, FieldsEvaluator), "the task is fields"
    run, errors = cast(JudgedModel, trained.logits()[0]), dict[float, dict[str, float]]()
    mesh = None
    with comm.together("reading the mesh", on_one=True):
        if request.mesh and comm.rank == 0:
            with GraphFile(config.data.graph) as graph:
                mesh = Mesh.read(request.mesh, graph)
    with field_file(request.output, trained, request.steps) as file:
        for forecast in evaluator.forecasts(run, request.start, request.steps):
            file.add(forecast)
            if forecast.rmse is not None:
                errors[forecast.time] = forecast.rmse
    if comm.rank == 0:
        _finish(config, request, mesh, errors)
    comm.barrier()
    return 0


def _finish(config: Config, request: RolloutRequest, mesh: "Mesh | None", errors: Mapping[float, Any]) -> None:
    """Write the other files beside the forecasts, and tell their errors."""
    path = Path(request.output)
    written = [path, *(write_xdmf(path) if mesh is None else mesh.write_series(path)), *draw_errors(path, errors)]
    with GraphFile(config.data.graph) as graph:
        written += draw_fields(path, graph, request.drawn, mesh)
    if errors:
        rows = [[f"{time:g}", *map(shown_number, each.values())] for time, each in errors.items()]
        first = next(iter(errors.values()))
        tell(tabulate(rows[-1:], ["RMSE at time", *first], tablefmt="rounded_outline", disable_numparse=True))
    tell(f"forecasts in {', '.join(map(str, written))}")
