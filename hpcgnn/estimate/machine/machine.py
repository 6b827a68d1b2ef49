"""The speed of a machine at the operations of training, as in its file (jobs/machines/*.toml).

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

from hpcgnn.errors import ConfigError
from hpcgnn.estimate.machine.toml_text import toml_text
from hpcgnn.estimate.trial.operations import COLUMNS, EDGE_KERNELS, ENTRIES, Operation

# Rates of gathers read rows in random order from a matrix with this number of rows.
ROWS = 16_000
# Columns that are computed together in a product.
LANES = 16
# Operations that no reference model has, or without a rate in older files. For a number, or an edge, each takes as long
# as the other one.
AS = dict.fromkeys(("dropout_entries", "drop_edges", "random_words", "narrow", "widen", "encode", "decode"), "dropout")
AS |= dict.fromkeys((ENTRIES, COLUMNS), "gather") | {"add_rows": "pack", "column_sums": "bias_gradient"}
AS |= {"score_forward": "attend_forward", "score_backward": "attend_backward", "norm_columns": "normalise"}
AS |= {"message_forward": "gather_largest", "message_backward": "gather_matching"}
AS |= dict.fromkeys(("norm_gradient_sums", "norm_columns_gradient"), "elu_gradient")


# The gain of a further thread, if no file has the number.
SECOND_THREAD = 0.9


class Rate(NamedTuple):
    """The cost of an operation per unit: an edge of a gather, a row of a product, a byte of torch's, a number
    otherwise.

    Attributes:
        name, type, width, depth: see Operation.
        other_seconds: additional seconds for each row of sums (gathers), or for each call (torch's operations).
    """

    name: str
    type: str
    width: int
    depth: int
    seconds: float
    other_seconds: float


@dataclass(frozen=True)
class Reading:
    """Seconds (F, R) to read a random row, by rising row bytes (R,) and footprints of the matrix (F,)."""

    row_bytes: list[int]
    footprints: list[int]
    seconds: list[list[float]]

    def of(self, row_bytes: float, footprints: np.ndarray) -> np.ndarray:
        """Interpolate the seconds for each footprint (bytes) between the measured ones, by their logarithms."""
        sizes = self.row_bytes
        of_row = [float(np.interp(row_bytes, sizes, times)) * max(1.0, row_bytes / sizes[-1]) for times in self.seconds]
        return np.interp(np.log(np.maximum(footprints, 1.0)), np.log(self.footprints), of_row)


@dataclass(frozen=True)
class Network:
    """The network between nodes.

    Attributes:
        latency: seconds of a message between nodes.
        bandwidth: bytes per second of a node in each direction.
        bisection: the share of it that is left when all nodes send to all.
        cpu_seconds_per_byte: processor time of one thread to copy a byte.
        cpu_seconds_per_message: processor time to begin and to finish a sent and a received message.
        cpu_seconds_per_exchange: additional time for a group of messages; older files have it in the time of a message.
        cpu_seconds_per_summed_byte: time for a byte of a sum over very many ranks (None: twice that of sending it).
        collective_step: seconds of each of the log2(P) steps of a barrier (None: the latency, and the processor time of
            an exchange of one message).
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
        """Return the seconds of a collective of `ranks` ranks with next to no data."""
        one = self.latency + self.cpu_seconds_per_message + self.cpu_seconds_per_exchange
        each = one if self.collective_step is None else self.collective_step
        return math.ceil(math.log2(ranks)) * each

    def summing(self, ranks: int) -> float:
        """Return the processor seconds of a rank for each byte of a sum over `ranks` ranks.

        Every rank sends, receives and adds all parts but one, and then sends and receives the sums likewise.
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

    Attributes:
        cores, memory, ranks, threads: the node's cores and bytes, the ranks on it, and the threads of a rank.
        libraries, shared: bytes of a rank before the graph is read, and the part that a node's ranks share.
        call: the main thread's seconds for a call of a kernel, outside of its parallel region.
        layer: seconds for a layer and epoch in addition to all calls.
        torch_byte: seconds for each byte of a torch operation without a rate.
        shared_core: factor of the processor seconds if two threads share a core.
        alone: the same factor if one core is at work and the others are not.
        reading, scratch: seconds of random rows, and the local disk, if any.
        page: seconds to allocate and free a page of memory.
        speed: [[threads, factor], …], rising: speed of a rank's kernels over one thread, with all ranks of a node at
            work.
        speed_alone: the same with one rank at work while the others sleep.
        second_thread: if neither was measured, the assumed gain of each further thread.
        wake: [[threads, seconds], …], to wake the threads for a parallel region and to wait for them at its end.
        watchdog: seconds of each second that a rank's watchdog takes from its main thread.
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
        """Return the thread curve for `threads` threads of each of `on_node` ranks.

        It is `speed`, or `speed_alone` for one rank, or the other one if only that goes far enough. It is empty if no
        curve has two threads.
        """
        both = [self.speed, self.speed_alone][:: -1 if on_node == 1 else 1]
        measured = [each for each in both if each and each[-1][0] > 1]
        return max(measured, key=lambda each: min(threads, each[-1][0]), default=[])

    def speedup(self, threads: int, on_node: int) -> float:
        """Return the speed of `threads` threads over one in parallel regions, with `on_node` ranks at work.

        It interpolates linearly between measured numbers. Larger numbers are as fast as the largest measured.
        """
        curve = self.curve(threads, on_node)
        return _on_line(threads, curve, 1.0) if curve else 1 + (threads - 1) * self.second_thread

    def waking(self, threads: int) -> float:
        """Return the seconds to wake `threads` threads of a rank and to wait for them."""
        return _on_line(threads, self.wake, 0.0) if threads > 1 else 0.0

    def assumed(self, threads: int, on_node: int) -> list[str]:
        """Describe the assumptions of an estimate for `threads` threads of each of `on_node` ranks."""
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
        return toml_text(values_of(self))


def _on_line(threads: int, points: list[list[float]], first: float) -> float:
    """Interpolate at `threads` threads between the two nearest points. first: the value at one thread."""
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
    """Read a machine file.

    `like` names another file in its folder with default values, also inside of tables. `faster` divides its times.

    Args:
        path: the file.
        before: files that refer to this one.

    Raises:
        ConfigError: the file is missing, wrong, or refers to itself.
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
            base = values_of(_faster(read_machine(path.parent / like, (path, *before)), faster))
        for name in {"network", "reading"} & base.keys() & values.keys():
            values[name] = base[name] | values[name]
        if "second_thread" in values:  # the thread curve of the other file does not apply then
            base |= {"speed": [], "speed_alone": []}
        return machine_of(base | values)
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


def machine_of(values: dict[str, Any]) -> Machine:
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


def values_of(machine: Machine) -> dict[str, Any]:
    """Return the known values of a machine in the form of a file."""
    values = asdict(machine)
    values["network"] = {name: value for name, value in values["network"].items() if value is not None}
    if machine.speed:
        del values["second_thread"]
    return {name: value for name, value in values.items() if value is not None and value != []}


def _faster(machine: Machine, factor: float) -> Machine:
    """Return a machine with cores and memory faster by a factor."""

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
