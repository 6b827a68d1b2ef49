"""The command line: one sub-command per module, errors of the user as one line, faults of the program with traceback.

The module of a sub-command has HELP (one line), DESCRIPTION (for users, with the peak memory), configure(parser) and
run(arguments, reporter) -> exit code. Exit codes: 0 done, 1 `verify` found a fault, 2 wrong input or options, 130
interrupted.
"""

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from hpcgnn.errors import ConfigError, HpcgnnError
from hpcgnn.likely_names import likely
from hpcgnn.parser import Parser
from hpcgnn.terminal import check_directory, prepare_streams, tell
from partition_tools.cli import (
    add_snapshots,
    generate_graph,
    import_graph,
    inspect_graph,
    partition_graph,
    verify_graph,
)
from partition_tools.workspace.progress import Reporter

COMMANDS = {
    "import": import_graph,
    "generate": generate_graph,
    "partition": partition_graph,
    "snapshots": add_snapshots,
    "inspect": inspect_graph,
    "verify": verify_graph,
}

EPILOG = """A graph usually goes through: import (or generate) -> partition -> inspect -> training.
  python -m partition_tools generate planted -o g.h5 --nodes 20000 --degree 15 --features 64 --classes 10 --seed 1
  python -m partition_tools partition add g.h5 --ranks 1,2,4
  python -m partition_tools inspect g.h5
About memory: n is the number of nodes, F of features, E of directed edges (an undirected edge counts twice)."""


def build_parser() -> Parser:
    """The parser of all sub-commands."""
    parser = Parser(
        prog="python -m partition_tools",
        epilog=EPILOG,
        description="Make, partition and check graph files for full-batch training.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        sub = commands.add_parser(name, help=module.HELP, description=module.DESCRIPTION)
        module.configure(sub)
        sub.set_defaults(run=module.run)
    parser.elsewhere = dict.fromkeys(("train", "evaluate", "predict", "report", "estimate", "doctor"), "hpcgnn")
    parser.name_commands()
    return parser


#: Flags of earlier versions that are no keys, and what to do.
REMOVED = {
    **dict.fromkeys(("--dataset", "--root"), "give the folder of the data set: import ~/dataset/ogbn_arxiv -o FILE"),
    "--from": "it is now --format",
    "--directed": "a graph is directed where --undirected is not given; leave it out",
    "--per-node": "maps are for ranks alone; leave it out",
    "--held-out": "hpcgnn predict RUN_DIR --held-out writes the held-out edges of a run",
}


def _refuse(word: str, flags: Iterable[str], prog: str) -> None:
    """Raise ConfigError for a word that a command does not know, with the most similar of its flags or keys.

    prog: the name of the command.
    """
    if not word.startswith("-"):
        raise ConfigError(f"unexpected argument {word!r}; see `{prog} --help`")
    given = word.split("=")[0]
    remedy, flag = REMOVED.get(given), likely(given, flags)
    if not remedy and flag:
        remedy = f"{flag} perhaps"
    if not remedy and "--relabel" in flags:
        names = {name: name for name in import_graph.KEYS} | {name.split(".")[1]: name for name in import_graph.KEYS}
        near = likely(given.strip("-"), names)
        remedy = f"--set {names[near]}=VALUE perhaps" if near else None
    raise ConfigError(f"{given} is no option: {f'{remedy}; ' if remedy else ''}see `{prog} --help`")


def main(argv: list[str] | None = None) -> int:
    """Run one sub-command; returns the exit code. argv: list of words without the program's name."""
    prepare_streams()
    words = sys.argv[1:] if argv is None else argv
    try:
        if words[:1] == ["partition"] and len(words) > 1 and words[1] not in ("add", "list", "remove", "-h", "--help"):
            graph = next((shlex.quote(word) for word in words if Path(word).is_file()), "GRAPH")
            maps = f"python -m partition_tools partition add {graph} --ranks 1,2,4"
            raise ConfigError(f"partition has the actions add, list and remove: `{maps}` makes maps")
        arguments, unknown = build_parser().parse_known_args(words)
        if unknown:
            _refuse(unknown[0], arguments.flags, arguments.prog)
        check_directory()
        return arguments.run(arguments, Reporter(sys.stderr))
    except HpcgnnError as error:
        tell("partition_tools: error: " + " ".join(str(error).split()), sys.stderr)
        return 2
    except MemoryError as error:
        tell(
            "partition_tools: error: there is not enough memory "
            f"({' '.join(str(error).split()) or 'out of memory'}); look at the counts and node ids of the input, "
            "which are contiguous from 0, or use a machine with more memory",
            sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        tell("partition_tools: interrupted; no file was changed", sys.stderr)
        return 130
