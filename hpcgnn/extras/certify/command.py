"""The command `certify`: its parser, and the refusal of runs that promise no common curve."""

import argparse
from dataclasses import dataclass
from typing import Self

from hpcgnn.cli.arguments import add_sections, read_options
from hpcgnn.cli.commands import Commands, on_ranks
from hpcgnn.config import Choices, Config, make_config
from hpcgnn.errors import ConfigError
from hpcgnn.plan.rules import schedules_with
from hpcgnn.schedules.schedule_registry import SCHEDULES
from hpcgnn.unused_options import without_effect

DESCRIPTION = """\
Train some steps on 1, 2, 4 … of the started ranks, one number after the other, from the same start. Compare losses,
gradients, parameters and metrics with those of the first number, and with the rounding that they may have:

    mpiexec -n 4 hpcgnn certify --graph graph.h5 --model sage --ranks 1,2,4 --out certificate
    mpiexec -n 4 hpcgnn certify --graph mesh.h5 --task fields --model meshgraphnet --snapshots-per-step 4 \\
        --ranks 1,2,4,4x2,4x4 --steps 100 --precision fp64

4x2 stands for 4 ranks in 2 replicas. A step is an epoch of `hpcgnn train`, whose options all hold. The rounding is
measured: the first number of ranks also trains in fp64. The exit code is 1 if a difference is more than rounding."""


@dataclass(frozen=True)
class Shape:
    """A number of ranks, and the replicas that they make."""

    ranks: int
    replicas: int = 1

    @classmethod
    def of(cls, text: str, replicas: int) -> Self:
        """The shape that a word such as 4 or 4x2 names. replicas: of a word without any, but for one rank.

        Raises ArgumentTypeError.
        """
        parts = text.split("x")
        if len(parts) > 2 or not all(part.isdecimal() and int(part) for part in parts):
            raise argparse.ArgumentTypeError(
                f"expected numbers of ranks, or RANKSxREPLICAS, such as 1,2,4 or 4,4x2, got {text!r}"
            )
        ranks = int(parts[0])
        shape = cls(ranks, int(parts[1]) if len(parts) > 1 else min(ranks, replicas))
        if shape.ranks % shape.replicas:
            raise argparse.ArgumentTypeError(
                f"{text}: expected replicas of equally many ranks, got {shape.ranks} ranks in {shape.replicas} replicas"
            )
        return shape

    def __str__(self) -> str:
        return f"{self.ranks}" + (f"x{self.replicas}" if self.replicas > 1 else "")


@dataclass(frozen=True)
class CertifyRequest:
    """The request of `hpcgnn certify`. shapes: words of --ranks; None: 1, the powers of two, and all ranks. pyg:
    FILE[:NAME] of a model of PyG's, or ''.
    """

    shapes: tuple[str, ...] | None
    steps: int
    out: str = ""
    force: bool = False
    pyg: str = ""

    def shapes_of(self, ranks: int, replicas: int) -> list[Shape]:
        """The shapes for so many started ranks, each once. Raises ConfigError, on all ranks."""
        usual = [1, *(replicas << power for power in range(ranks.bit_length())), ranks]
        words = self.shapes or [str(each) for each in usual if each == 1 or replicas <= each <= ranks]
        try:
            found = list(dict.fromkeys(Shape.of(word, replicas) for word in words))
        except argparse.ArgumentTypeError as error:
            raise ConfigError.on_all(f"--ranks {error}") from error
        if (most := max(shape.ranks for shape in found)) > ranks:
            raise ConfigError.on_all(
                f"--ranks {','.join(map(str, found))}: expected at most the {ranks} started; start mpiexec -n {most}"
            )
        return found


def _words(text: str) -> tuple[str, ...]:
    words = tuple(text.split(","))
    for word in words:
        Shape.of(word, 1)
    return words


def _steps(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def add_certify(commands: Commands, choices: Choices) -> None:
    """`hpcgnn certify`."""
    certify = commands.add_parser(
        "certify",
        conflict_handler="resolve",  # --steps is also a key of schedules, which are refused here
        help="whether several numbers of ranks learn the same, to rounding",
        description=DESCRIPTION,
    )
    add_sections(certify, choices)
    own = certify.add_argument_group("certify")
    own.add_argument(
        "--ranks",
        dest="shapes",
        type=_words,
        metavar="P[xR][,…]",
        help="numbers of ranks, or RANKSxREPLICAS; the first is compared with (default: 1, 2, 4 … and all)",
    )
    own.add_argument(
        "--steps", dest="certified_steps", type=_steps, metavar="K", default=10, help="epochs of each (default: 10)"
    )
    own.add_argument(
        "--pyg", metavar="FILE[:NAME]", default="", help="also train this model of PyG, in fp64 (docs/certificate.md)"
    )
    own.add_argument("--out", metavar="DIR", default="", help="where to write (default: certificates/MODEL-DATE)")
    own.add_argument("--force", action="store_true", help="replace an earlier certificate in --out")
    certify.set_defaults(process=process_certify)


def process_certify(arguments: argparse.Namespace, choices: Choices) -> int:
    """Certify; the configuration is checked before MPI starts."""
    from hpcgnn.extras.certify.certifying import certify

    given, filed, typed, notes = read_options(arguments)
    config = make_config(given, choices, arguments.config or "the command line")
    check_promise(config)
    if arguments.pyg:
        from hpcgnn.extras.certify.pyg_model import check_pyg

        check_pyg(config)
    remark = without_effect(config, typed, filed, choices)
    asked = arguments.shapes, arguments.certified_steps, arguments.out, arguments.force, arguments.pyg
    request = CertifyRequest(*asked)
    return on_ranks(lambda session: certify(config, session, request, [*notes, *filter(None, [remark])]), config)


def check_promise(config: Config) -> None:
    """Raise ConfigError for a run whose curve depends on the number of ranks, or that is no run from the start."""
    schedule, run = config.schedule, config.run
    if not SCHEDULES[schedule.schedule].traits.exact_epochs:
        exact = schedules_with(lambda traits: traits.exact_epochs)
        raise ConfigError(
            f"certify compares curves of several numbers of ranks, and --schedule {schedule.schedule} does not promise "
            f"one curve: expected --schedule {exact}"
        )
    if schedule.halo_dtype != "fp32" and run.precision != "mixed":
        raise ConfigError(
            f"certify: --halo-dtype {schedule.halo_dtype} rounds the rows that ranks send, so that each number of "
            "ranks has a curve of its own: expected --halo-dtype fp32"
        )
    if run.resume or run.run_dir:
        raise ConfigError("certify trains from the start: expected --out in place of --run-dir, and no --resume")
