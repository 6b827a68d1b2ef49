"""The command line: one sub-command per module, errors of the user as one line, faults of the program with traceback.

The module of a sub-command has HELP (one line), DESCRIPTION (for users, with the peak memory), configure(parser) and
run(arguments, reporter) -> exit code. Exit codes: 0 done, 1 `verify` found a fault, 2 wrong input or options, 130
interrupted.
"""

import argparse
import difflib
import sys

from hpcgnn.errors import ConfigError, HpcgnnError
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


def build_parser() -> argparse.ArgumentParser:
    """The argparse parser of all sub-commands."""
    parser = argparse.ArgumentParser(
        prog="partition_tools",
        epilog=EPILOG,
        description="Make, partition and check graph files for full-batch training.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=module.HELP,
            description=module.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.configure(sub)
        sub.set_defaults(run=module.run)
    return parser


#: Flags of earlier versions that are no keys, and what to do.
REMOVED = {
    **dict.fromkeys(("--dataset", "--root"), "give the folder of the data set: import ~/dataset/ogbn_arxiv -o FILE"),
    "--from": "it is now --format",
    "--per-node": "maps are for ranks alone; leave it out",
    "--held-out": "hpcgnn predict RUN_DIR --held-out writes the held-out edges of a run",
}


def _refuse(word: str) -> None:
    """Raise ConfigError for a flag that no command has, with the most similar key of `import`."""
    names = {name: name for name in import_graph.KEYS} | {name.split(".")[1]: name for name in import_graph.KEYS}
    near = difflib.get_close_matches(word.split("=")[0].strip("-").replace("-", "_"), names, 1)
    remedy = REMOVED.get(word) or (f"--set {names[near[0]]}=VALUE perhaps" if near else "see --help")
    raise ConfigError(f"{word} is no option: {remedy}")


def main(argv: list[str] | None = None) -> int:
    """Run one sub-command; returns the exit code. argv: list of words without the program's name."""
    prepare_streams()
    words = sys.argv[1:] if argv is None else argv
    try:
        if words[:1] == ["partition"] and len(words) > 1 and words[1] not in ("add", "list", "remove", "-h", "--help"):
            raise ConfigError("partition has actions: partition add GRAPH --ranks 1,2,4 makes maps (partition --help)")
        arguments, unknown = build_parser().parse_known_args(words)
        if unknown:
            _refuse(unknown[0])
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
