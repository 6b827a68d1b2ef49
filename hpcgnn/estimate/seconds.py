"""Seconds of an epoch on a machine: what operations take, what messages take, and how much of these is hidden."""

import math
from dataclasses import dataclass

import numpy as np

from hpcgnn.estimate.forecast import Forecast, Rank
from hpcgnn.estimate.machine import ROWS, Machine
from hpcgnn.estimate.operations import COLUMNS, EDGE_KERNELS, ENTRIES, PAGES, Operation
from hpcgnn.estimate.shares import Shares
from hpcgnn.estimate.traffic import Traffic

PRODUCTS = {"multiply", "product", "project", "project_elu", "project_backward", "project_backward_elu"}
PRODUCTS |= {"project_backward_weights", "project_backward_elu_weights"}
CALLS_OF_TURN = 6  # to pack, to send and receive, to wait, to compute
SIZES = {"fp32": 4, "fp64": 8, "bf16": 2, "": 4, "other": 4}


@dataclass
class Seconds:
    """Of an epoch on the rank with most to do. parts: wall seconds by part, which add up to `epoch`; cpu: processor
    seconds of all ranks together; unknown: names of operations that the machine has no rate of.
    """

    epoch: float
    parts: dict[str, float]
    cpu: float
    evaluation: float
    unknown: list[str]


def seconds(forecast: Forecast, machine: Machine) -> Seconds:
    """What an epoch takes, and an evaluation."""
    shares, limit, unknown = forecast.shares, forecast.experiment.limit, set[str]()
    ranks = shares.ranks
    on_node = min(ranks, machine.ranks)
    nodes = -(-ranks // machine.ranks)
    # Threads that are more than the cores take turns; further ones of a rank add less than the first.
    threads = 1 + (machine.threads - 1) * machine.second_thread
    crowd = max(1.0, on_node * machine.threads / machine.cores)
    # A thread that has its turn finds 1 - 1 / crowd of the core's caches full of what others have left there.
    speed, slower = threads / crowd, 1 + (machine.shared_core - 1) * 2 * (1 - 1 / crowd)
    # Rates are of all cores at work, which share caches, memory and heat; the fewer are, the faster each is.
    idle = max(0.0, machine.cores - on_node * machine.threads) / max(1, machine.cores - 1)
    slower *= 1 - (1 - machine.alone) * idle
    layers = slower * machine.layer * forecast.experiment.spec.layers

    def of_rank(rank: Rank) -> dict[str, float]:
        parts = _times(slower, _computing(rank.work, shares.in_training, limit, machine, unknown))
        return parts | {"others": parts["others"] + layers}

    mean = of_rank(forecast.mean)
    # Of ranks that share a core the other one must first have it.
    messages = (2 - 1 / crowd) * _message_cpu(forecast.halo, machine) + _reductions_cpu(forecast, machine)
    work = sum(mean.values())
    slowest = max(work, *(sum(of_rank(rank).values()) for rank in (forecast.busiest, forecast.largest)))
    others = max(0.0, ranks * work - slowest) / max(1, ranks - 1)
    network, hidden = _wire_seconds(forecast.halo, machine, nodes, on_node), work / speed
    parts = {name: value / speed for name, value in mean.items()}
    rounds = sum(max(0, each.turns - each.turns_tried) for each in forecast.halo.values())
    parts["others"] += rounds * CALLS_OF_TURN * machine.call / speed
    # Ranks that share cores share them evenly, until the others are done and the slowest has one for itself.
    waiting = 1 - 1 / ranks if crowd == 1 else max(0.0, 1 - crowd / on_node)
    parts["imbalance"] = (slowest - others) / threads * waiting
    parts["messages"] = float(messages.mean()) / speed + max(0.0, network - hidden)
    parts["reduction"] = _reduction(forecast, machine, nodes)
    evaluated = _computing(forecast.mean.evaluation, shares, limit, machine, unknown)
    evaluation = slower * sum(evaluated.values()) / speed
    evaluation += max(0.0, _wire_seconds(forecast.evaluation, machine, nodes, on_node) - evaluation)
    epoch, processor = sum(parts.values()), work * ranks + float(messages.sum())
    if crowd == 1 and forecast.experiment.config.run.comm != "torch":  # a thread that waits for MPI takes its core
        processor = max(processor, ranks * (epoch + work * (1 - 1 / machine.threads)))
    return Seconds(epoch, parts, processor, evaluation, sorted(unknown))


def _times(factor: float, parts: dict[str, float]) -> dict[str, float]:
    return {name: factor * value for name, value in parts.items()}


def _computing(
    work: dict[Operation, np.ndarray], shares: Shares, limit: int, machine: Machine, unknown: set[str]
) -> dict[str, float]:
    """{part: processor seconds} of a rank. shares: of the graph that the work is done on; limit: bytes of the halo
    buffers.
    """
    parts = {"gather": 0.0, "products": 0.0, "others": 0.0}
    for operation, (calls, rows, edges) in work.items():
        if operation == PAGES:
            parts["others"] += rows * machine.page
            continue
        each = machine.seconds_per_unit(operation)
        if each is None:
            unknown.add(operation.name)
            continue
        if operation.name in EDGE_KERNELS:
            part, total = "gather", edges * each[0] * _relative(operation, shares, limit, machine) + rows * each[1]
        elif operation.name == "torch":
            parts["others"] += edges * each[0] + calls * each[1]
            continue
        else:
            part, total = "products" if operation.name in PRODUCTS else "others", rows * each[0]
        parts[part] += total + calls * machine.call
    return parts


def _relative(operation: Operation, shares: Shares, limit: int, machine: Machine) -> float:
    """How much longer reading a row takes than where the machine was measured: in random order on ROWS rows."""
    row = max(1, operation.width) * SIZES[operation.type]
    rows, missed = {ENTRIES: shares.entry_locality, COLUMNS: shares.column_locality}.get(
        operation.name, shares.locality
    )
    # An edge whose source was among the last r different ones costs what a row of a matrix of r rows does.
    share = np.append(-np.diff(missed), missed[-1])
    costs = machine.reading.of(row, np.append(rows[1:], 4 * rows[-1]) * row)
    each, remote = float(share @ costs), float(shares.remote.sum() / max(1, shares.edges.sum()))
    if operation.name not in (ENTRIES, COLUMNS) and remote:
        # Rows of a turn lie in one of three parts of the halo buffers, and nothing tells in which order they are read.
        part = np.array([min(limit / 3, float(shares.inward.received.mean()) * row)])
        each = (1 - remote) * each + remote * float(machine.reading.of(row, part)[0])
    return each / float(machine.reading.of(row, np.array([ROWS * row]))[0])


def _message_cpu(halo: dict[str, Traffic], machine: Machine) -> np.ndarray:
    """float (P,): processor seconds for messages."""
    total = sum(
        machine.network.cpu_seconds_per_byte * each.bytes + machine.network.cpu_seconds_per_message * each.messages
        for each in halo.values()
    )
    return np.asarray(total, np.float64) + 0.0


def _reductions_cpu(forecast: Forecast, machine: Machine) -> float:
    """Processor seconds of a rank for all that is reduced."""
    network = machine.network
    if forecast.shares.ranks == 1:
        return 0.0
    return sum(
        messages * network.cpu_seconds_per_message + size * network.summing(forecast.shares.ranks)
        for messages, size in forecast.others.values()
    )


def _wire_seconds(traffic: dict[str, Traffic], machine: Machine, nodes: int, on_node: int) -> float:
    """What messages take that leave a node, as if nothing were computed meanwhile."""
    if nodes == 1:
        return 0.0
    network, away = machine.network, (nodes - 1) / nodes
    total = 0.0
    for each in traffic.values():
        size = float(each.bytes.max()) * on_node * away
        total += size / (network.bandwidth * network.bisection) + each.turns * network.latency
    return total


def _reduction(forecast: Forecast, machine: Machine, nodes: int) -> float:
    """Wall seconds of what is reduced: twice its bytes, and the logarithm of the ranks in latencies."""
    ranks = forecast.shares.ranks
    if ranks == 1:
        return 0.0
    network = machine.network
    size = sum(size for _, size in forecast.others.values())
    calls = sum(messages for messages, _ in forecast.others.values())
    return 2 * size / network.bandwidth * (nodes > 1) + calls * math.ceil(math.log2(ranks)) * network.latency
