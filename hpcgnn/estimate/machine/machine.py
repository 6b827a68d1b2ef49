"""How fast a machine does what training consists of, as its file says (jobs/machines/*.toml).

`hpcgnn bench machine` measures one and writes such a file. Times of operations are processor seconds of one core while
all cores are at work.
"""

import math
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from hpcgnn.errors import ConfigError
from hpcgnn.estimate.trial.operations import COLUMNS, EDGE_KERNELS, ENTRIES, Operation

# What rates of gathers belong to: rows in random order from a matrix of so many.
ROWS = 16_000
# Columns that are computed together in a product.
LANES = 16
# Operations that no reference model has, or without a rate in older files. For a number, or an edge, each takes as long
# as the other one.
AS = dict.fromkeys(("dropout_entries", "drop_edges", "random_words", "narrow", "widen"), "dropout")
AS |= dict.fromkeys((ENTRIES, COLUMNS), "gather") | {"add_rows": "pack"}


# The gain of a further thread, if no file has the number.
SECOND_THREAD = 0.9


class Rate(NamedTuple):
    """What an operation takes for each of its units: an edge of a gather, a row of a product, a byte that torch reads
    or writes, a number of all others.

    name, type, width, depth: as of Operation. other_seconds: of gathers, for each row of sums besides; of torch's
    operations, for each call.
    """

    name: str
    type: str
    width: int
    depth: int
    seconds: float
    other_seconds: float


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
    the share of it that is left when all nodes send to all.

    cpu_seconds_per_byte, cpu_seconds_per_message: processor time of one thread of a rank for what it sends and receives
    (of a message: to begin and to finish the one that goes and the one that comes; of a byte: to copy it);
    cpu_seconds_per_exchange: for the messages that are begun together, besides those of each (older files have it in
    that of a message); cpu_seconds_per_summed_byte: for a byte of what is summed over very many ranks (None: as much as
    for sending it twice); collective_step: seconds of each of the log2(P) steps in which all ranks meet (None: the
    latency, and the processor time of an exchange of one message).
    """

    latency: float
    bandwidth: float
    bisection: float
    cpu_seconds_per_byte: float
    cpu_seconds_per_message: float
    cpu_seconds_per_summed_byte: float | None = None
    cpu_seconds_per_exchange: float = 0.0
    collective_step: float | None = None

    def meeting(self, ranks: int) -> float:
        """Seconds of a collective of so many ranks that moves next to nothing."""
        one = self.latency + self.cpu_seconds_per_message + self.cpu_seconds_per_exchange
        each = one if self.collective_step is None else self.collective_step
        return math.ceil(math.log2(ranks)) * each

    def summing(self, ranks: int) -> float:
        """Processor seconds of a rank for each byte that is summed over so many: every rank sends, receives and adds
        all parts but one, and then sends and receives the sums likewise.
        """
        each = self.cpu_seconds_per_summed_byte
        return (2 * self.cpu_seconds_per_byte if each is None else each) * (1 - 1 / ranks)


@dataclass(frozen=True)
class Disk:
    """read, write: bytes per second of a node's local disk, in requests of some MiB one after another."""

    read: float
    write: float


@dataclass(frozen=True)
class Machine:
    """A kind of node.

    cores, memory (bytes), ranks: of a node, as it is to be used; threads: of a rank. libraries: bytes of a rank before
    the graph is read; shared: those of them that the ranks of a node have together.
    call: seconds of the main thread for a call of a kernel, outside of its parallel region, and layer: those of a layer
    and epoch besides all calls; torch_byte: of each byte that torch reads or writes in an operation that has no rate;
    shared_core: how many times the processor seconds operations take where two threads share a core; alone: the same
    where one core is at work and the others are not. reading: of rows at random. page: seconds to hand out a page of
    memory and to take it back. scratch: the local disk, if any.

    speed: [[threads, factor], …], rising: how many times as fast as one thread the kernels of a rank are, where all
    ranks of a node work; speed_alone: where one rank works and the others sleep. second_thread: where neither was
    measured, what each further thread is assumed to add. wake: [[threads, seconds], …], to wake the threads for a
    parallel region and to wait for them at its end. watchdog: seconds of each second that the watchdog of a rank takes
    from its main thread.
    """

    name: str
    source: str
    cores: int
    memory: int
    ranks: int
    threads: int
    libraries: int
    shared: int
    call: float
    torch_byte: float
    network: Network
    reading: Reading
    rates: list[Rate] = field(default_factory=list)
    shared_core: float = 1.0
    alone: float = 1.0
    layer: float = 0.0
    page: float = 0.0
    scratch: Disk | None = None
    second_thread: float = SECOND_THREAD
    speed: list[list[float]] = field(default_factory=list)
    speed_alone: list[list[float]] = field(default_factory=list)
    wake: list[list[float]] = field(default_factory=list)
    watchdog: float = 0.0

    def curve(self, threads: int, on_node: int) -> list[list[float]]:
        """The thread curve for so many threads of each of `on_node` ranks: `speed`, or for one rank `speed_alone`; the
        other one if it alone goes so far. Nothing where no curve has two threads.
        """
        both = [self.speed, self.speed_alone][:: -1 if on_node == 1 else 1]
        measured = [each for each in both if each and each[-1][0] > 1]
        return max(measured, key=lambda each: min(threads, each[-1][0]), default=[])

    def speedup(self, threads: int, on_node: int) -> float:
        """How many times as fast as one thread so many of each of `on_node` ranks do what is done in parallel. Between
        two numbers of threads that were measured it is on the line through both; more are as fast as the most.
        """
        curve = self.curve(threads, on_node)
        return _on_line(threads, curve, 1.0) if curve else 1 + (threads - 1) * self.second_thread

    def waking(self, threads: int) -> float:
        """Seconds to wake so many threads of a rank and to wait for them."""
        return _on_line(threads, self.wake, 0.0) if threads > 1 else 0.0

    def assumed(self, threads: int, on_node: int) -> list[str]:
        """What an estimate for so many threads of each of `on_node` ranks takes for granted, in words."""
        if threads == 1:
            return []
        curve, said = self.curve(threads, on_node), []
        if not curve:
            said.append(f"each thread after the first adds {self.second_thread:g} of its speed (second_thread)")
        elif curve[-1][0] < threads:
            said.append(f"{threads} threads are as fast as {curve[-1][0]:g}, the most of the thread curve (speed)")
        elif curve is self.speed_alone and on_node > 1:
            said.append(f"threads of {on_node} ranks are as fast as those of one rank alone (speed_alone)")
        if not self.wake:
            said.append("waking the threads takes no time (wake)")
        return said

    @cached_property
    def _by_kind(self) -> dict[tuple[str, str], list[Rate]]:
        found: dict[tuple[str, str], list[Rate]] = {}
        for rate in self.rates:
            found.setdefault((rate.name, rate.type), []).append(rate)
        return found

    def seconds_per_unit(self, operation: Operation) -> tuple[float, float] | None:
        """(of a unit, and Rate's other_seconds) of this operation, from the rates of the nearest shapes; None where
        nothing alike was measured.
        """
        if operation.name == "torch" and ("torch", operation.type) not in self._by_kind:
            return self.torch_byte, 0.0
        names = dict.fromkeys((operation.name, AS.get(operation.name, operation.name)))
        kinds = [(name, kind) for name in names for kind in (operation.type, "fp32")]
        known = next((found for kind in kinds if (found := self._by_kind.get(kind))), None)
        if not known:
            return None
        # Products of many small matrices with a column each are made one by one, and not as one large product.
        known = [rate for rate in known if (rate.width == 1) == (operation.width == 1)] or known
        # Seconds per number change slowly with the shape of an operation.
        numbers = _numbers(operation)
        distances = [abs(math.log(_numbers(rate) / numbers)) + 0.2 * _unlike(rate, operation) for rate in known]
        order = np.argsort(distances, kind="stable")[:2]
        shares = [1 / (distances[index] + 1e-3) for index in order]
        near = [
            (share / sum(shares) / _numbers(known[index]), known[index])
            for share, index in zip(shares, order, strict=True)
        ]
        each = numbers * sum(share * rate.seconds for share, rate in near)
        return each, numbers * sum(share * rate.other_seconds for share, rate in near)

    def to_toml(self) -> str:
        return tomli_w.dumps(_said(self))


def _on_line(threads: int, points: list[list[float]], first: float) -> float:
    """At so many threads, between the two nearest points. first: at one thread."""
    numbers, values = zip([1, first], *points, strict=True)
    return float(np.interp(threads, numbers, values))


def _numbers(shape: Operation | Rate) -> int:
    """Of a row, as many as it takes time for: in a product fewer columns than LANES take as long as these."""
    if shape.name in EDGE_KERNELS or shape.depth == 0:
        return max(1, shape.width)
    return max(LANES, shape.width) * max(LANES, shape.depth)


def _unlike(rate: Rate, operation: Operation) -> float:
    """How different two shapes are that may have as many numbers."""
    ratios = ((rate.width, operation.width), (rate.depth, operation.depth))
    return sum(abs(math.log(max(1, one) / max(1, other))) for one, other in ratios)


def read_machine(path: str | Path, before: tuple[Path, ...] = ()) -> Machine:
    """The Machine of a file. `like` names another file beside it whose values hold where this one has none, also inside
    of a table; `faster` divides its times. before: files that are like this one. Raises ConfigError.
    """
    path = Path(path)
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
    try:
        like, faster = values.pop("like", None), values.pop("faster", 1.0)
        _check_number("faster", float, faster)
        if like is None and faster != 1.0:
            raise ValueError("faster divides the times of the file that `like` names, and there is no `like`")
        base: dict[str, Any] = {}
        if like is not None:
            if not isinstance(like, str) or path.parent / like in (path, *before):
                raise ValueError(f"expected like to be the name of another machine file, got {like!r}")
            base = _said(_faster(read_machine(path.parent / like, (path, *before)), faster))
        for name in {"network", "reading"} & base.keys() & values.keys():
            values[name] = base[name] | values[name]
        if "second_thread" in values:  # the thread curve of the other file does not apply then
            base |= {"speed": [], "speed_alone": []}
        return _machine(base | values)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is no machine file: {error}; compare it with those of jobs/machines/, or measure the machine "
            "with `hpcgnn bench machine -o FILE`"
        ) from error


# Optional values of a file: older ones do not have them.
_OPTIONAL = {"rates", "shared_core", "alone", "layer", "page", "cpu_seconds_per_summed_byte", "scratch"}
_OPTIONAL |= {
    "second_thread",
    "speed",
    "speed_alone",
    "wake",
    "watchdog",
    "collective_step",
    "cpu_seconds_per_exchange",
}
# Numbers that must be above zero.
_ABOVE_NOTHING = {"cores", "memory", "ranks", "threads", "faster", "bandwidth", "bisection", "shared_core", "alone"}
_ABOVE_NOTHING |= {"read", "write", "factor"}


def _machine(values: dict[str, Any]) -> Machine:
    """A Machine of plain values, checked. Raises ValueError or TypeError."""
    machine: Machine = _made(Machine, values)
    network, reading = _made(Network, values["network"]), _made(Reading, values["reading"])
    shape, rising = (len(reading.footprints), len(reading.row_bytes)), (reading.footprints, reading.row_bytes)
    if np.shape(reading.seconds) != shape or any(min(each) <= 0 or np.any(np.diff(each) <= 0) for each in rising):
        raise ValueError(
            "expected rising row_bytes and footprints in reading, and its seconds a row for each footprint"
        )
    rates = []
    for each in machine.rates:
        if len(each) != len(Rate._fields):
            raise ValueError(f"expected rates of {', '.join(Rate._fields)}, got {each!r}")
        rates.append(Rate(*each))
        for name, value in zip(Rate._fields[2:], each[2:], strict=True):
            _check_number(f"{name} in rates", float, value)
    for name, what in (("speed", "factor"), ("speed_alone", "factor"), ("wake", "seconds")):
        _check_curve(name, what, getattr(machine, name))
    scratch = None if values.get("scratch") is None else _made(Disk, values["scratch"])
    return replace(machine, network=network, reading=reading, rates=rates, scratch=scratch)


def _made(kind: Any, values: Any) -> Any:
    """An instance of a dataclass, with all its fields and no others."""
    if not isinstance(values, dict):
        raise ValueError(f"expected {kind.__name__.lower()} to be a table, got {values!r}")
    names = [each.name for each in fields(kind)]
    unknown, missing = values.keys() - {*names}, [name for name in names if name not in values.keys() | _OPTIONAL]
    if unknown or missing:
        what = f"{sorted(unknown)[0]!r} is no key of it" if unknown else f"{missing[0]!r} is missing"
        raise ValueError(what)
    for each in fields(kind):
        if each.type in (int, float, float | None) and each.name in values:
            _check_number(each.name, int if each.type is int else float, values[each.name])
    return kind(**values)


def _check_curve(name: str, what: str, points: Any) -> None:
    if not isinstance(points, list) or any(not isinstance(each, list) or len(each) != 2 for each in points):
        raise ValueError(f"expected {name} to be a list of [threads, {what}], got {points!r}")
    for threads, value in points:
        _check_number("threads", int, threads)
        _check_number(what, float, value)
    if any(np.diff([threads for threads, _ in points]) <= 0):
        raise ValueError(f"expected {name} to have rising numbers of threads, got {points!r}")


def _check_number(name: str, kind: Any, value: Any) -> None:
    least = name in _ABOVE_NOTHING
    good = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if not good or not 0 <= value < math.inf or (least and value == 0):
        what = ("a whole number" if kind is int else "a number") + (" above 0" if least else " of at least 0")
        raise ValueError(f"expected {name} to be {what}, got {value!r}")


def _said(machine: Machine) -> dict[str, Any]:
    """The values of a machine as a file has them, without what is not known."""
    values = asdict(machine)
    values["network"] = {name: value for name, value in values["network"].items() if value is not None}
    if machine.speed:
        del values["second_thread"]
    return {name: value for name, value in values.items() if value is not None and value != []}


def _faster(machine: Machine, factor: float) -> Machine:
    """A machine whose cores do everything so much faster, and whose memory does."""

    reading = replace(machine.reading, seconds=[[each / factor for each in times] for times in machine.reading.seconds])
    return replace(
        machine,
        call=machine.call / factor,
        layer=machine.layer / factor,
        torch_byte=machine.torch_byte / factor,
        page=machine.page / factor,
        wake=[[threads, value / factor] for threads, value in machine.wake],
        reading=reading,
        rates=[
            rate._replace(seconds=rate.seconds / factor, other_seconds=rate.other_seconds / factor)
            for rate in machine.rates
        ],
    )
