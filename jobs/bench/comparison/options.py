"""The command line of compare.py."""

import argparse
import shlex
from pathlib import Path

from comparison.cases import OURS, parse_epochs, parse_variant
from comparison.environments import PEERS, ROOT

EPILOG = """examples:
  python jobs/bench/comparison/compare.py                     all systems and models on a graph of 169,343 nodes
  python jobs/bench/comparison/compare.py --graph g.h5 --systems hpcgnn,dgl --models sage --ranks 1,4
  python jobs/bench/comparison/compare.py --graph g.h5 --variant narrow='--halo-buffer 1' -- --seed 3
  python jobs/bench/comparison/compare.py --graph g.h5 --variant scattered='--partition random-nodes' --ranks 1,8
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python jobs/bench/comparison/compare.py --ranks 1     with huge pages
  python jobs/bench/comparison/compare.py --redraw runs/compare/compare.json   tables again
"""


def parse(argv, description):
    """The checked options; mistakes end the program with one line and exit code 2."""
    parser = argparse.ArgumentParser(
        description=description, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    what = parser.add_argument_group("what is compared")
    what.add_argument(
        "--systems",
        type=_names(OURS, *PEERS),
        default=[OURS, "dgl", "pyg"],
        help="default: hpcgnn,dgl,pyg; `torch` is bare torch, `sar` SAR on as many ranks as hpcgnn",
    )
    what.add_argument("--models", type=_names("sage", "gcn", "gat"), default=["sage", "gcn", "gat"])
    what.add_argument("--ranks", type=_numbers, default=[1, 2, 4, 8], help="of hpcgnn and sar (default: 1,2,4,8)")
    what.add_argument("--threads", type=_number, default=2, help="in all, and cores to run on (default: 2)")
    what.add_argument(
        "--variant",
        type=_checked(parse_variant),
        action="append",
        default=[],
        metavar="NAME='OPTIONS'",
        help="measure hpcgnn with these options too, under a name of its own; may be repeated",
    )
    what.add_argument("--reference", default="dgl", help="case that ratios are taken to (default: dgl)")
    work = parser.add_argument_group("the work")
    work.add_argument("--graph", help="graph file (default: a generated one of 169,343 nodes)")
    work.add_argument("--layers", type=_number, default=3)
    work.add_argument("--hidden", type=_number, default=256, help="width of hidden layers, sage and gcn (default: 256)")
    work.add_argument("--heads", type=_number, default=4, help="of hidden layers, gat (default: 4)")
    work.add_argument("--head-width", type=_number, default=64, help="width of one head, gat (default: 64)")
    work.add_argument("--dropout", type=float, default=0.0, help="before every layer (default: 0)")
    work.add_argument("--lr", type=float, default=0.01, help="of Adam (default: 0.01)")
    how = parser.add_argument_group("how it is measured")
    how.add_argument("--rounds", type=_number, default=3, help="each measures every case once (default: 3)")
    how.add_argument("--epochs", type=_number, default=5, help="that count, in each measurement (default: 5)")
    how.add_argument("--discard", type=int, default=2, help="first epochs that do not count (default: 2)")
    how.add_argument(
        "--peer-epochs",
        action="append",
        default=[],
        metavar="N|SYSTEM:MODEL=N",
        help="epochs that count for peers, or for one of them on one model; may be repeated (default: as --epochs)",
    )
    how.add_argument("--timeout", type=_number, default=900, help="seconds for one measurement (default: 900)")
    how.add_argument(
        "--constant-nodes",
        type=int,
        default=4000,
        help="nodes of the small graph on which the constant part of memory is measured; 0: not at all (default: 4000)",
    )
    where = parser.add_argument_group("where")
    where.add_argument("--out", type=Path, default=Path("runs/compare"), help="results (default: runs/compare)")
    where.add_argument("--environments", type=Path, default=ROOT / "build" / "bench-envs", help="kept, for the peers")
    where.add_argument("--graphs", type=Path, default=ROOT / "build" / "bench-graphs", help="kept, generated ones")
    where.add_argument("--redraw", type=Path, metavar="JSON", help="only the tables of an earlier comparison")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="-- and more options of `hpcgnn train`")
    options = parser.parse_args(argv)
    _finish(parser, options)
    return options


def _finish(parser, options):
    if options.options[:1] not in ([], ["--"]):
        parser.error(f"unexpected {options.options[0]!r}; options of `hpcgnn train` come after --")
    options.options = options.options[1:]
    if options.discard < 0 or options.constant_nodes < 0:
        parser.error("--discard and --constant-nodes: expected at least 0")
    try:
        options.peer_epochs = parse_epochs(options.peer_epochs, options.epochs)
    except ValueError as error:
        parser.error(f"--peer-epochs: {error}")
    names = [name for name, _ in options.variant]
    if len(set(names)) < len(names):
        parser.error(f"--variant: expected different names, got {', '.join(names)}")
    options.variants = {"": options.options, **{name: [*options.options, *more] for name, more in options.variant}}


def command_line(argv):
    """How to do it again."""
    return shlex.join(["python", "jobs/bench/comparison/compare.py", *argv])


def _number(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {text!r}")
    return int(text)


def _numbers(text):
    return [_number(part) for part in text.split(",")]


def _names(*known):
    def parse_names(text):
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got {name!r}")
        return list(dict.fromkeys(names))

    return parse_names


def _checked(function):
    def parse_one(text):
        try:
            return function(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse_one
