"""How fast a machine does what training consists of, as its file says (jobs/machines/*.toml).

`hpcgnn bench machine` measures one and writes such a file. Times of operations are processor seconds of one core while
all cores are at work.
"""

import math
import tomllib
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from hpcgnn.errors import ConfigError
from hpcgnn.estimate.operations import EDGE_KERNELS, Operation

# What rates of gathers belong to: rows in random order from a matrix of so many.
ROWS = 16_000


# Operations that no reference model has, and which take for a number what others do.
AS = {"dropout_entries": "dropout", "random_words": "dropout"}


class Rate(NamedTuple):
    """What an operation takes for each of its units: an edge of a gather, a row of a product, a number of all others.

    name, type, width, depth: as of Operation. row_seconds: of gathers, for each row of sums besides.
    """

    name: str
    type: str
    width: int
    depth: int
    seconds: float
    row_seconds: float


@dataclass(frozen=True)
class Reading:
    """Seconds to read a row at random. row_bytes (R,), footprints (F,): sizes of rows, and of what they are drawn from,
    rising. seconds: (F, R).
    """

    row_bytes: list[int]
    footprints: list[int]
    seconds: list[list[float]]

    def of(self, row_bytes: float, footprints: np.ndarray) -> np.ndarray:
        """float, of each footprint (bytes): between those that were measured, by their logarithms."""
        sizes = self.row_bytes
        of_row = [float(np.interp(row_bytes, sizes, times)) * max(1.0, row_bytes / sizes[-1]) for times in self.seconds]
        return np.interp(np.log(np.maximum(footprints, 1.0)), np.log(self.footprints), of_row)


@dataclass(frozen=True)
class Network:
    """latency: seconds of a message between nodes; bandwidth: bytes per second of a node in each direction; bisection:
    the share of it that is left when all nodes send to all; cpu_seconds_per_byte, cpu_seconds_per_message: processor
    time of a rank for what it sends and receives within a node.
    """

    latency: float
    bandwidth: float
    bisection: float
    cpu_seconds_per_byte: float
    cpu_seconds_per_message: float


@dataclass(frozen=True)
class Machine:
    """A kind of node.

    cores, memory (bytes), ranks: of a node, as it is to be used; threads: of a rank. near_cache: of a core, last_cache:
    of all cores that share one, in bytes; sharers: how many do. libraries: bytes of a rank before the graph is read.
    call, torch_call: seconds of a kernel's or a torch operation's call itself; torch_byte: of each byte that torch's
    operations read or write; second_thread: what each further thread of a rank adds to its speed. reading: of rows at
    random.
    """

    name: str
    source: str
    cores: int
    memory: int
    ranks: int
    threads: int
    near_cache: int
    last_cache: int
    sharers: int
    libraries: int
    call: float
    torch_call: float
    torch_byte: float
    second_thread: float
    network: Network
    reading: Reading
    rates: list[Rate] = field(default_factory=list)

    @cached_property
    def _by_kind(self) -> dict[tuple[str, str], list[Rate]]:
        found: dict[tuple[str, str], list[Rate]] = {}
        for rate in self.rates:
            found.setdefault((rate.name, rate.type), []).append(rate)
        return found

    def seconds_per_unit(self, operation: Operation) -> tuple[float, float] | None:
        """(of a unit, of a row besides) of this operation, from the rates of the nearest shapes; None where nothing
        alike was measured.
        """
        name = AS.get(operation.name, operation.name)
        known = self._by_kind.get((name, operation.type)) or self._by_kind.get((name, "fp32"))
        if not known:
            return None
        # By number, what an operation takes changes slowly with its shape.
        numbers = _numbers(operation)
        distances = [abs(math.log(_numbers(rate) / numbers)) + 0.2 * _unlike(rate, operation) for rate in known]
        order = np.argsort(distances, kind="stable")[:2]
        shares = [1 / (distances[index] + 1e-3) for index in order]
        near = [(share / sum(shares) / _numbers(known[index]), known[index]) for share, index in zip(shares, order)]
        each = numbers * sum(share * rate.seconds for share, rate in near)
        return each, numbers * sum(share * rate.row_seconds for share, rate in near)

    def to_toml(self) -> str:
        return tomli_w.dumps(asdict(self))


def _numbers(shape: Operation | Rate) -> int:
    return max(1, shape.width) * max(1, 1 if shape.name in EDGE_KERNELS else shape.depth)


def _unlike(rate: Rate, operation: Operation) -> float:
    """How different two shapes are that may have as many numbers."""
    ratios = ((rate.width, operation.width), (rate.depth, operation.depth))
    return sum(abs(math.log(max(1, one) / max(1, other))) for one, other in ratios)


def read_machine(path: str | Path) -> Machine:
    """The Machine of a file. `like` names another file beside it whose values hold where this one has none; `faster`
    divides its times. Raises ConfigError.
    """
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise ConfigError(
            f"cannot read the machine file {path}: {error.strerror}; expected one of jobs/machines/, or what "
            "`hpcgnn bench machine -o FILE` writes"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    like, faster = values.pop("like", None), values.pop("faster", 1.0)
    base: dict[str, Any] = {}
    if like is not None:
        base = asdict(_faster(read_machine(Path(path).parent / like), faster))
    try:
        return _machine(base | values)
    except (TypeError, KeyError, ValueError) as error:
        raise ConfigError(
            f"{path} is no machine file: {error}; compare it with those of jobs/machines/, or measure the machine "
            "with `hpcgnn bench machine -o FILE`"
        ) from error


def _machine(values: dict[str, Any]) -> Machine:
    network, reading = Network(**values.pop("network")), Reading(**values.pop("reading"))
    rates = [Rate(*each) for each in values.pop("rates", [])]
    machine = Machine(network=network, reading=reading, rates=rates, **values)
    for name in ("cores", "memory", "ranks", "threads"):
        if not isinstance(getattr(machine, name), int) or getattr(machine, name) < 1:
            raise ValueError(f"expected {name} to be a whole number of at least 1, got {getattr(machine, name)!r}")
    return machine


def _faster(machine: Machine, factor: float) -> Machine:
    """A machine whose cores do everything so much faster, and whose memory does."""

    reading = replace(machine.reading, seconds=[[each / factor for each in times] for times in machine.reading.seconds])
    return replace(
        machine,
        call=machine.call / factor,
        torch_call=machine.torch_call / factor,
        torch_byte=machine.torch_byte / factor,
        reading=reading,
        rates=[
            rate._replace(seconds=rate.seconds / factor, row_seconds=rate.row_seconds / factor)
            for rate in machine.rates
        ],
    )
