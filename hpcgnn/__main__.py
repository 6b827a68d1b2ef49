"""The command line: `hpcgnn train`, `evaluate`, `predict`, `export`, `report`, `doctor` …

Sub-commands name one function each. torch is imported only after the cores of the process are read, and the allocator
and the waiting policy of OpenMP are set. Its libraries bind the main thread, and read both, when they load.
"""

import argparse
import contextlib
import os
import sys

from hpcgnn import __version__, interruption

if __name__ == "__main__" or os.path.basename(sys.argv[0]) == "hpcgnn":
    interruption.end_at_once("hpcgnn")

from hpcgnn import fork_server
from hpcgnn.cli.arguments import RANK_OPTIONS, about_unknown, add_declared, asked_early
from hpcgnn.cli.commands import COMMANDS, Commands
from hpcgnn.cli.train import add_train
from hpcgnn.cli.trained_runs import add_evaluate, add_predict
from hpcgnn.cli.weights import add_export
from hpcgnn.config import Choices
from hpcgnn.errors import ConfigError, HpcgnnError
from hpcgnn.parser import Parser
from hpcgnn.plan.choices import registry_choices
from hpcgnn.registry import load_extras
from hpcgnn.report import command as report_command
from hpcgnn.terminal import check_directory, prepare_streams, tell

# Commands that read files only and must run where neither torch nor MPI is installed.
FILES_ONLY = ("report",)
# Commands of `python -m partition_tools`, for whoever asks for them here.
OF_THE_TOOLS = ("import", "generate", "partition", "snapshots", "inspect", "verify")
# Turns in which an idle thread of libgomp looks for work before it sleeps: about as long as it takes to wake it
# (docs/cluster.md has both).
SPINS = "2000"
# Variables by which the user sets how idle threads wait.
WAIT_VARIABLES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}


def set_process_policies() -> None:
    """Read and decide all that torch reads when it is loaded: the cores, how the allocators keep memory, and how idle
    threads wait. The user's settings of waits stay.
    """
    from hpcgnn import cores
    from hpcgnn.memory.resident import set_allocator_policy

    set_allocator_policy()
    cores.usable()
    if not WAIT_VARIABLES & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # torch maps tensors of its own operations anew in each epoch: 512 times as many page faults with small pages.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def listen_to_signals() -> None:
    """Note SIGUSR1 from the first moment: until then it ends the process, and loading torch takes seconds."""
    from hpcgnn.engine.stopping import StopRequest

    StopRequest.of_this_process()


def build_parser(choices: Choices | None) -> Parser:
    """The argument parser. choices: names from the registries; None: of the commands that read files only."""
    parser = Parser(
        prog="hpcgnn",
        description="Full-batch graph neural networks on MPI ranks.",
        epilog="Graph files are made by `python -m partition_tools`.",
    )
    parser.add_argument("--version", action="version", version=f"hpcgnn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    if choices is None:
        add_report(commands)
    else:
        add_train(commands, choices)
        add_report(commands)
        for add in (add_evaluate, add_predict, add_export, *COMMANDS.values(), add_doctor):
            add(commands, choices)
    parser.elsewhere = dict.fromkeys(OF_THE_TOOLS, "python -m partition_tools")
    parser.name_commands()
    return parser


def add_report(commands: Commands) -> None:
    """`hpcgnn report`."""
    report = commands.add_parser("report", help="tables, figures and one page from run directories; studies of scaling")
    report_command.add_arguments(report)
    report.set_defaults(process=lambda arguments, choices: report_command.report(arguments))


def add_doctor(commands: Commands, choices: Choices) -> None:
    """`hpcgnn doctor`."""
    doctor = commands.add_parser(
        "doctor",
        help="check this installation and machine; say what is wrong and how to mend it",
        description="Check versions, MPI, threads, HDF5 and kernels on the ranks it is started on.\nExit code 1 if "
        "something is wrong.",
    )
    add_declared(doctor, RANK_OPTIONS, choices)
    doctor.set_defaults(process=process_doctor)


def process_doctor(arguments: argparse.Namespace, choices: Choices) -> int:
    """Check the installation on the ranks it was started on."""
    from hpcgnn.comm.run import run
    from hpcgnn.doctor import examine, examine_without_mpi

    return run(examine, without_mpi=examine_without_mpi, transport=arguments.comm or "mpi")


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    prepare_streams()
    fork_server.enter(load_all, listen_to_signals) if argv is None else listen_to_signals()
    set_process_policies()
    files_only = (sys.argv[1:] if argv is None else argv)[:1] in [[name] for name in FILES_ONLY]
    try:
        check_directory()
        choices = None if files_only else load(argv)
        interruption.end_in_order()
        arguments, unknown = build_parser(choices).parse_known_args(argv)
        if unknown:
            raise ConfigError(about_unknown(unknown[0], arguments.command, arguments.flags))
        return arguments.process(arguments, choices)
    except HpcgnnError as error:
        if files_only or _is_first_rank():
            tell(f"hpcgnn: error: {error}", sys.stderr)
        return 2
    except KeyboardInterrupt:  # of a run that trains `run` and engine/stopping.py know more
        if files_only or _is_first_rank():
            tell("hpcgnn: interrupted", sys.stderr)
        return 130
    except Exception:  # a broken installation on one node, a file system that fails
        from hpcgnn.comm.run import fail_before_start

        transport = None
        with contextlib.suppress(ConfigError):
            transport = asked_early(argv, "comm")[0]
        fail_before_start(transport or "mpi")
        raise


def load(argv: list[str] | None) -> Choices:
    """The names that the registries offer; torch is loaded for that, and the plugin."""
    from hpcgnn.memory.resident import import_torch_without_meta_kernels

    try:
        import_torch_without_meta_kernels()
        load_extras()
        plugin, file = asked_early(argv, "plugin")
        if plugin:
            from hpcgnn.nn.plugin import load_plugin

            load_plugin(plugin, "" if "--trust-run" in (sys.argv if argv is None else argv) else file)
        return registry_choices()
    except SystemExit as error:  # or this rank would leave, and the others wait for it
        raise RuntimeError(f"what is imported asked to exit with code {error.code}") from error


def load_all() -> None:
    """Import all modules of a rank that trains, and start nothing."""
    set_process_policies()
    load([])
    import hpcgnn.app.train
    from hpcgnn.comm.start_mpi import load_mpi

    with contextlib.suppress(ImportError, RuntimeError):  # ranks without MPI do not need it, and others say so
        load_mpi()
        import hpcgnn.comm.mpi  # noqa: F401


def _is_first_rank() -> bool:
    from hpcgnn.comm.launcher import launch

    return launch().rank == 0


if __name__ == "__main__":
    sys.exit(main())
