"""Seconds of an epoch on a machine: operations, messages, and the hidden part of the messages."""

from dataclasses import dataclass

import numpy as np

from hpcgnn.estimate.counts.shares import Shares
from hpcgnn.estimate.counts.traffic import Traffic
from hpcgnn.estimate.forecast import Forecast, Rank
from hpcgnn.estimate.machine.machine import ROWS, Machine
from hpcgnn.estimate.trial.operations import COLUMNS, EDGE_KERNELS, ENTRIES, PAGES, Operation

PRODUCTS = {"multiply", "product", "project", "project_elu", "project_backward", "project_backward_elu"}
PRODUCTS |= {"project_backward_weights", "project_backward_elu_weights"}
#: Parts of an epoch that the threads of a rank share.
PARALLEL = "gather", "products", "others"
CALLS_OF_TURN = 6  # to pack, to send and receive, to wait, to compute
REGIONS_OF_TURN = 2  # of these, the parallel regions: to pack, and to compute
# torch gives an operation to several threads from 32,768 numbers on; two at least are read or written for each.
TORCH_BYTES = 2 * 4 * 32768
# A job's epoch ends with one more collective, by which no rank goes on where one has failed.
LAST_MEETING = 1
SIZES = {"fp32": 4, "fp64": 8, "bf16": 2, "": 4, "other": 4}


@dataclass
class Seconds:
    """The time of an epoch on the busiest rank.

    The parts `gather`, `products` and `others` are the work of kernels and of torch, which the threads of a rank share.
    All other parts run on one thread. `serial` has calls, layers, wake-ups and the watchdog. `messages` has their
    processor time, and their transfer time that is not hidden. `reduction` has the collectives.

    Attributes:
        parts: wall seconds by part, which add up to `epoch`.
        cpu: processor seconds of all ranks together.
        unknown: names of operations without a rate of the machine.
        assumed: unmeasured properties of the machine that matter here, in words.
    """

    epoch: float
    parts: dict[str, float]
    cpu: float
    evaluation: float
    unknown: list[str]
    assumed: list[str]


@dataclass(frozen=True)
class Cores:
    """How ranks share the cores of a node.

    Attributes:
        threads: threads of a rank.
        crowd, crowd_serial: threads on a core if all threads of all ranks work, and if one thread of each works.
        speed: speed of a rank's threads over one, each on a core of its own.
        slower: factor of the processor seconds over the machine's rates.
    """

    threads: int
    crowd: float
    crowd_serial: float
    speed: float
    slower: float

    @classmethod
    def of(cls, machine: Machine, on_node: int) -> "Cores":
        """Return the Cores of a node with `on_node` ranks."""
        # Threads that are more than the cores take turns.
        crowd = max(1.0, on_node * machine.threads / machine.cores)
        # A thread that has its turn finds 1 - 1 / crowd of the core's caches full of other threads' data.
        slower = 1 + (machine.shared_core - 1) * 2 * (1 - 1 / crowd)
        # Rates are of all cores at work, which share caches, memory and heat; the fewer are, the faster each is. The
        # thread curve has the gain of further threads.
        idle = max(0.0, machine.cores - on_node * machine.threads) / max(1, machine.cores - 1)
        if machine.threads > 1 and machine.curve(machine.threads, on_node):
            idle = float(on_node == 1)
        slower *= 1 - (1 - machine.alone) * idle
        speed = machine.speedup(machine.threads, on_node)
        return cls(machine.threads, crowd, max(1.0, on_node / machine.cores), speed, slower)

    def alone(self, parts: dict[str, float]) -> float:
        """Wall seconds of a rank's processor seconds by part, if no other thread were on its cores."""
        return parts["serial"] + sum(parts[name] for name in PARALLEL) / self.speed

    def shared(self, parts: dict[str, float]) -> dict[str, float]:
        """{part: wall seconds} where all ranks do the same."""
        factors = dict.fromkeys(PARALLEL, self.crowd / self.speed) | {"serial": self.crowd_serial}
        return {name: value * factors[name] for name, value in parts.items()}


def seconds(forecast: Forecast, machine: Machine) -> Seconds:
    """Return the seconds of an epoch, and of an evaluation."""
    shares, limit, unknown = forecast.shares, forecast.experiment.limit, set[str]()
    ranks = shares.ranks
    on_node = min(ranks, machine.ranks)
    nodes = -(-ranks // machine.ranks)
    cores = Cores.of(machine, on_node)
    layers = machine.layer * forecast.experiment.spec.layers

    def of_rank(rank: Rank) -> dict[str, float]:
        parts = _computing(rank.work, shares.in_training, limit, machine, unknown)
        return _times(cores.slower, parts | {"serial": parts["serial"] + layers})

    mean = of_rank(forecast.mean)
    work, usual = sum(mean.values()), cores.alone(mean)
    slowest = max(usual, *(cores.alone(of_rank(rank)) for rank in (forecast.busiest, forecast.largest)))
    others = max(0.0, ranks * usual - slowest) / max(1, ranks - 1)
    parts = cores.shared(mean)
    rounds = sum(max(0, each.turns - each.turns_tried) for each in forecast.halo.values())
    of_turn = CALLS_OF_TURN * machine.call + REGIONS_OF_TURN * machine.waking(machine.threads)
    parts["serial"] += rounds * of_turn * cores.crowd_serial
    # Ranks that share cores share them evenly, until the others are done and the slowest has one for itself.
    waiting = 1 - 1 / ranks if cores.crowd == 1 else max(0.0, 1 - cores.crowd / on_node)
    network, hidden = _wire_seconds(forecast.halo, machine, nodes, on_node), sum(parts.values())
    parts["imbalance"] = (slowest - others) * waiting
    # Of ranks that share a core the other one must first have it. One thread begins messages and copies them.
    wait = 2 - 1 / cores.crowd
    messages, reduced = wait * _message_cpu(forecast.halo, machine), wait * _reductions_cpu(forecast, machine)
    parts["messages"] = float(messages.mean()) * cores.crowd_serial + max(0.0, network - hidden)
    parts["reduction"] = _reduction(forecast, machine, nodes, reduced * cores.crowd_serial)
    if ranks > 1:
        parts["serial"] += machine.watchdog * sum(parts.values())
    evaluated = _computing(forecast.mean.evaluation, shares, limit, machine, unknown)
    evaluation = sum(cores.shared(_times(cores.slower, evaluated)).values())
    evaluation += max(0.0, _wire_seconds(forecast.evaluation, machine, nodes, on_node) - evaluation)
    epoch, processor = sum(parts.values()), work * ranks + float(messages.sum()) + ranks * reduced
    if (
        cores.crowd == 1 and forecast.experiment.config.run.comm != "torch"
    ):  # a thread that waits for MPI takes its core
        parallel = sum(mean[name] for name in PARALLEL)
        processor = max(processor, ranks * (epoch + parallel * (1 - 1 / machine.threads)))
    return Seconds(epoch, parts, processor, evaluation, sorted(unknown), machine.assumed(machine.threads, on_node))


def _times(factor: float, parts: dict[str, float]) -> dict[str, float]:
    return {name: factor * value for name, value in parts.items()}


def _computing(
    work: dict[Operation, np.ndarray], shares: Shares, limit: int, machine: Machine, unknown: set[str]
) -> dict[str, float]:
    """Return {part: processor seconds} of a rank; the `serial` ones run on one thread.

    Args:
        work: {Operation: amounts}.
        shares: Shares of the graph under the work.
        limit: bytes of the halo buffers.
        machine: the machine.
        unknown: names of operations without a rate; extended.
    """
    parts = dict.fromkeys((*PARALLEL, "serial"), 0.0)
    wake = machine.waking(machine.threads)
    for operation, (calls, rows, edges) in work.items():
        if operation == PAGES:
            parts["others"] += rows * machine.page
            continue
        each = machine.seconds_per_unit(operation)
        if each is None:
            unknown.add(operation.name)
            continue
        if operation.name == "torch":
            shared = edges >= TORCH_BYTES * calls
            parts["others" if shared else "serial"] += edges * each[0]
            parts["serial"] += calls * (each[1] + wake * shared)
            continue
        if operation.name in EDGE_KERNELS:
            part, total = "gather", edges * each[0] * _relative(operation, shares, limit, machine) + rows * each[1]
        else:
            part, total = "products" if operation.name in PRODUCTS else "others", rows * each[0]
        parts[part] += total
        parts["serial"] += calls * (machine.call + wake)
    return parts


def _relative(operation: Operation, shares: Shares, limit: int, machine: Machine) -> float:
    """How much longer reading a row takes than where the machine was measured: in random order on ROWS rows."""
    row = max(1, operation.width) * SIZES[operation.type]
    rows, missed = {ENTRIES: shares.entry_locality, COLUMNS: shares.column_locality}.get(
        operation.name, shares.locality
    )
    # An edge whose source was among the last r different ones costs as much as a row of a matrix of r rows.
    share = np.append(-np.diff(missed), missed[-1])
    costs = machine.reading.of(row, np.append(rows[1:], 4 * rows[-1]) * row)
    each, remote = float(share @ costs), float(shares.remote.sum() / max(1, shares.edges.sum()))
    if operation.name not in (ENTRIES, COLUMNS) and remote:
        # Rows of a turn lie in one of three parts of the halo buffers, and the order of reading them is unknown.
        part = np.array([min(limit / 3, float(shares.inward.received.mean()) * row)])
        each = (1 - remote) * each + remote * float(machine.reading.of(row, part)[0])
    return each / float(machine.reading.of(row, np.array([ROWS * row]))[0])


def _message_cpu(halo: dict[str, Traffic], machine: Machine) -> np.ndarray:
    """float (P,): processor seconds for messages."""
    network = machine.network
    total = sum(
        network.cpu_seconds_per_byte * each.bytes
        + network.cpu_seconds_per_message * each.messages
        + network.cpu_seconds_per_exchange * each.exchanges
        for each in halo.values()
    )
    return np.asarray(total, np.float64) + 0.0


def _reductions_cpu(forecast: Forecast, machine: Machine) -> float:
    """Processor seconds of a rank for the bytes that are reduced."""
    ranks = forecast.shares.ranks
    size = sum(size for _, size in forecast.others.values())
    return 0.0 if ranks == 1 else size * machine.network.summing(ranks)


def _wire_seconds(traffic: dict[str, Traffic], machine: Machine, nodes: int, on_node: int) -> float:
    """Return the seconds of messages that leave a node, without overlap with work."""
    if nodes == 1:
        return 0.0
    network, total = machine.network, 0.0
    for each in traffic.values():
        away = (nodes - 1) / nodes if each.nodes is None else 1.0
        size = float(each.bytes.max()) * on_node * away
        total += size / (network.bandwidth * network.bisection) + each.turns * network.latency
    return total


def _reduction(forecast: Forecast, machine: Machine, nodes: int, adding: float) -> float:
    """Return the wall seconds of reductions: twice the bytes, their additions, and the barriers of all ranks."""
    ranks = forecast.shares.ranks
    if ranks == 1:
        return 0.0
    size = sum(size for _, size in forecast.others.values())
    meetings = LAST_MEETING + sum(messages for messages, _ in forecast.others.values())
    return adding + 2 * size / machine.network.bandwidth * (nodes > 1) + meetings * machine.network.meeting(ranks)
