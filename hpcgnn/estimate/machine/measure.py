"""`hpcgnn bench machine`: the speed of this machine at the operations of training, measured on all ranks at once.

Every rank runs reference models on a random graph by itself (with a GhostCommunicator), while the others do the same.
Cores share their memory's bandwidth, so a rate of one core alone would promise too much. Every kernel and every torch
operation is timed by processor time, on one thread. Time outside of them belongs to the main thread, whatever the
number of threads. The gain of more threads is a curve of its own (thread_curve.py).
"""

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hpcgnn import cores, kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.config import Choices, make_config
from hpcgnn.engine.matmul import set_matmul
from hpcgnn.estimate.arguments import Stats
from hpcgnn.estimate.counts.assumed import assumed_meta
from hpcgnn.estimate.machine.contention import sharing_factors
from hpcgnn.estimate.machine.machine import ROWS, Machine, Rate, Reading, machine_of, values_of
from hpcgnn.estimate.machine.messages import network_of
from hpcgnn.estimate.machine.thread_curve import thread_curves
from hpcgnn.estimate.trial.operations import EDGE_KERNELS, PAGES, Operation
from hpcgnn.estimate.trial.scaled_rank import Direction, Size
from hpcgnn.estimate.trial.trial import CODE, Experiment, Prepared, looking, pages_of_process
from hpcgnn.memory.resident import common_bytes, resident_bytes
from hpcgnn.ops.row_tiles import TILE_ROWS, tiles_of
from hpcgnn.plan.rules import Selection
from hpcgnn.plan.run_plan import plan
from hpcgnn.plugins.memory_profile import trim_heap

DEGREES = 6, 24
# {options} of models that together use all kernels, at widths that span the usual ones.
MODELS: list[dict[str, object]] = [
    {"model": model, "hidden": hidden // (4 if "heads" in others else 1), **others}
    for model, widths, others in (
        ("sage", (16, 64, 256), {}),
        ("gcn", (64, 256), {"precision": "mixed"}),
        ("gat", (16, 64, 256, 1024), {"heads": 4}),
        ("rgcn", (64, 256), {}),
        ("gin", (64,), {"norm": "batch"}),
        ("sage", (64,), {"aggregator": "max"}),
        ("pna", (64,), {}),
        ("transformer", (256,), {"heads": 4}),
    )
    for hidden in widths
]
ROW_BYTES = [16, 64, 256, 1024]
# (options, whether features are sparse) of models with few classes: products and gathers of few columns take longer
# than their numbers tell. Sparse features have as many columns as there are nodes.
FEW: list[tuple[dict[str, object], bool]] = [
    ({"model": "gcn", "hidden": 256}, True),
    ({"model": "sage", "hidden": 256, "precision": "mixed"}, True),
    ({"model": "gat", "hidden": 64, "heads": 4}, False),
]
FEW_CLASSES = 4
EPOCHS = 2
_SMALLER = 16  # times fewer rows are worked on at a time where calls of kernels are to be many
_SHARED = 1  # index of the model that measures the cost of sharing a core, and the memory: sage, 64
_NARROW = 64  # most columns of models that show the time outside of operations: wide ones take long, and show no more
_BYTES_OF_CALL = 1 << 16
_EDGES = 1 << 18
_FRESH_BYTES = 1 << 24
_WATCHED_SECONDS = 5.0


def measure(session: Session, choices: Choices, say: Callable[[str], None]) -> Machine:
    """The Machine that the ranks run on. Collective. Rates are means over the ranks."""
    comm = session.comm
    torch.set_num_threads(1)
    first = reference(choices)  # which makes a step on a toy graph, as a job does before it loads its own
    trim_heap()
    libraries, shared = resident_bytes(), common_bytes()
    experiments = [first, *(_experiment(options, choices) for options in MODELS[1:])]
    experiments += [_experiment(options, choices, FEW_CLASSES, sparse) for options, sparse in FEW]
    page = _page(comm)
    say("pages of memory: measured")
    reading = _reading(*_caches(), comm)
    say("reading rows at random: measured")
    samples: dict[Operation, list[tuple[np.ndarray, float]]] = {}
    beside: list[tuple[float, float]] = []  # seconds of a call of a kernel, and of a layer, that are in no operation
    for options, experiment in zip([*MODELS, *(options for options, _ in FEW)], experiments, strict=True):
        outside = _width(options) <= _NARROW
        for degree in DEGREES:
            comm.barrier()
            few = _run(experiment, degree, page, samples, outside)
            if outside and degree == DEGREES[0]:
                with tiles_of(TILE_ROWS // _SMALLER):  # calls that do little, and count for nothing else
                    beside.append(_besides(few, _run(experiment, degree, page, {}, True), experiment.spec.layers))
        say(f"{' '.join(str(value) for value in options.values())}: measured")
    sharing, alone = sharing_factors(_steps(experiments[_SHARED]), comm)
    say("two processes on each core, and one rank alone: measured")
    own = cores.physical(cores.usable())
    of_node = cores.physical(frozenset().union(*comm.allgather_object(cores.usable())))
    curves = thread_curves(lambda rows: _steps(experiments[_SHARED], min(DEGREES), rows), own, of_node, comm)
    say(f"up to {max(curves.speed + curves.speed_alone)[0]:g} threads of a rank: measured")
    call, layer = np.median(beside, axis=0).tolist()
    # Calls with few bytes do not show the seconds per byte.
    by_torch = [(op, each) for op, found in samples.items() if op.name == "torch" for each in found]
    many = [(op, each) for op, each in by_torch if _moves_much(each)]
    little = {op for op, _ in by_torch} - {op for op, _ in many}
    rates = [Rate(*op, *_per_unit(op, found)) for op, found in samples.items() if op not in little]
    mine = Machine(
        name=platform.node(),
        source=f"measured by `hpcgnn bench machine` with {comm.size} ranks on {platform.machine()}; not the network "
        "between nodes",
        cores=of_node,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        ranks=comm.size,
        threads=session.threads,
        libraries=libraries,
        shared=shared,
        call=call,
        layer=layer,
        torch_byte=sum(each[1] for _, each in many) / sum(float(each[0][2]) for _, each in many),
        speed=curves.speed,
        speed_alone=curves.speed_alone,
        wake=curves.wake,
        watchdog=_watchdog_share(session),
        shared_core=sharing,
        alone=alone,
        page=sum(page),
        network=network_of(comm),
        reading=reading,
        rates=rates,
    )
    return _mean([machine_of(values) for values in comm.allgather_object(values_of(mine))])


def _width(options: dict[str, Any]) -> int:
    """Columns of a model's hidden layers."""
    return int(options["hidden"]) * int(options.get("heads", 1))


def reference(choices: Choices) -> Experiment:
    """Return the model that defines the libraries of a machine file."""
    experiment = _experiment(MODELS[0], choices)
    CODE[experiment.spec.model] = 0
    return experiment


def _experiment(options: dict[str, object], choices: Choices, classes: int = 40, sparse: bool = False) -> Experiment:
    config = make_config({"graph": "none", "layers": 3, "dropout": 0.5, **options}, choices, "bench machine")
    types = 3 if Selection(config).layers.relational else 0
    plain = assumed_meta(Stats(ROWS, ROWS * max(DEGREES), features=ROWS if sparse else 128, classes=classes))
    meta = replace(plain, typed=types > 0, num_edge_types=types, sparse_features=sparse)
    return Experiment.of(plan(config, meta, 1).deciding(False))


def _prepared(experiment: Experiment, degree: int, rows: int = ROWS) -> Prepared:
    """Prepare an experiment for timing, on a graph with `degree` edges per node."""
    set_matmul(experiment.config.run.matmul)
    half = Direction(rows * degree // 2, rows * degree // 2, rows, rows, rows)
    # As many stored features as edges, so that these gathers, too, are of rows with few and with many.
    size = Size(2, rows, rows // 2, rows * 3 // 4, half, None, entries=degree)
    return experiment.trainer(size, np.array([degree]))


def _run(
    experiment: Experiment,
    degree: int,
    page: tuple[float, float],
    samples: dict[Operation, list[tuple[np.ndarray, float]]],
    outside: bool,
) -> tuple[float, float]:
    """Add the costs of an experiment's operations without fresh pages, (amounts, seconds), to `samples`.

    Args:
        experiment: the experiment.
        degree: edges per node.
        page: see `_page`.
        samples: {operation: samples}, extended.
        outside: also time epochs in which nobody looks at operations.

    Returns:
        the seconds of an epoch outside of all operations (0 unless asked for), and its number of kernel calls. The
            rates of torch's operations contain their calls.
    """
    prepared = _prepared(experiment, degree)
    trainer = prepared.trainer
    trainer.step(0)
    plain, inside, calls = [], [], 0.0
    for epoch in range(1, EPOCHS + 1):
        if outside:
            start = time.thread_time()
            trainer.step(epoch)
            plain.append(time.thread_time() - start)
        with looking(trainer, prepared.local) as found:
            trainer.step(epoch + EPOCHS)
        for operation, taken in found.seconds.items():
            net = max(taken - page[0] * found.pages[operation], taken / 100)
            samples.setdefault(operation, []).append((found.work[operation], net))
        handed_out = found.work[PAGES][1]
        inside.append(sum(found.seconds.values()) + page[1] * handed_out)
        calls = sum(float(amounts[0]) for operation, amounts in found.work.items() if operation.name != "torch")
    return max(0.0, min(plain, default=0.0) - min(inside)), calls


def _besides(few: tuple[float, float], many: tuple[float, float], layers: int) -> tuple[float, float]:
    """Return (seconds of a kernel call, seconds of a layer) outside of all operations.

    Args:
        few, many: results of `_run` for epochs with few and with many calls.
        layers: number of layers.
    """
    call = max(0.0, many[0] - few[0]) / max(1.0, many[1] - few[1])
    return call, max(0.0, few[0] - call * few[1]) / layers


def _steps(experiment: Experiment, degree: int = max(DEGREES), rows: int = ROWS) -> Callable[[], float]:
    """Return a function that runs a step of an experiment, on a graph with `degree` edges per node."""
    trainer = _prepared(experiment, degree, max(rows, ROWS)).trainer
    return lambda: trainer.step(0)


def _watchdog_share(session: Session) -> float:
    """Processor seconds that this rank's watchdog takes each second."""
    thread = session.watchdog
    if thread is None or thread.ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    clock, start = time.pthread_getcpuclockid(thread.ident), time.monotonic()
    before = time.clock_gettime(clock)
    time.sleep(_WATCHED_SECONDS)
    return (time.clock_gettime(clock) - before) / (time.monotonic() - start)


def _moves_much(sample: tuple[np.ndarray, float]) -> bool:
    """Return whether the calls of a torch operation moved enough bytes each to dominate its time."""
    amounts, _ = sample
    return bool(amounts[2] >= _BYTES_OF_CALL * amounts[0])


def _per_unit(operation: Operation, samples: list[tuple[np.ndarray, float]]) -> tuple[float, float]:
    """Return the seconds of a Rate.

    Graphs with few and with many edges separate the two seconds of gathers. Calls with few and with many bytes separate
    those in torch's operations.
    """
    from scipy.optimize import nnls  # here, for it would be counted with the libraries of a rank

    amounts, seconds = np.array([each for each, _ in samples]), np.array([each for _, each in samples])
    if operation.name not in {"torch", *EDGE_KERNELS}:
        return float(seconds.sum() / max(1.0, amounts[:, 1].sum())), 0.0
    units = amounts[:, (2, 0 if operation.name == "torch" else 1)]
    found, _ = nnls(units / seconds[:, None], np.ones(len(seconds)))  # all count alike
    return float(found[0]), float(found[1])


def _page(comm: Communicator) -> tuple[float, float]:
    """Seconds in which the system hands out a page of memory, and in which it takes it back."""
    times = []
    for _ in range(9):
        comm.barrier()
        before, numbers = pages_of_process(), torch.empty(_FRESH_BYTES, dtype=torch.uint8)
        moments = [time.thread_time()]
        for _ in range(2):
            numbers.zero_()
            moments.append(time.thread_time())
        pages = max(1, pages_of_process() - before)
        del numbers
        first, second, release = np.diff([*moments, time.thread_time()])
        times.append((max(0.0, first - second) / pages, release / pages))
    handed, taken = np.median(times, axis=0).tolist()
    return handed, taken


def _reading(near: int, last: int, comm: Communicator) -> Reading:
    """Of gathers from matrices that fit the near cache, some of the last one, most of it, and none."""
    footprints = sorted({near // 2, max(near, last // 8), max(near, last // 2), 4 * last})
    seconds: list[list[float]] = []
    for size in footprints:
        memory = torch.ones(max(2 * max(ROW_BYTES), size) // 4)
        seconds.append([])
        for row_bytes in ROW_BYTES:
            comm.barrier()
            seconds[-1].append(_gather_seconds(memory, row_bytes))
    return Reading(ROW_BYTES, footprints, seconds)


def _gather_seconds(memory: torch.Tensor, row_bytes: int) -> float:
    """Return the seconds per random row of a matrix that takes all this memory."""
    width, degree = row_bytes // 4, 16
    x = memory[: len(memory) // width * width].view(-1, width)
    y = torch.empty(1024, width)
    indptr = torch.arange(0, 1024 * degree + 1, degree)
    draw = np.random.default_rng(0)
    times = []
    for _ in range(max(3, _EDGES // (1024 * degree) // max(1, row_bytes // 256))):
        indices = torch.from_numpy(draw.integers(0, len(x), 1024 * degree, dtype=np.int32))
        start = time.thread_time()
        kernels.gather(y, x, indptr, indices)
        times.append((time.thread_time() - start) / len(indices))
    return float(np.median(times))


def _caches() -> tuple[int, int]:
    """(bytes of the second level's cache, bytes of the last level's)."""
    found = sorted(_kernel_caches())
    if not found:
        return 1 << 20, 32 << 20
    return next((size for level, size in found if level == 2), found[-1][1]), found[-1][1]


def _kernel_caches() -> Iterator[tuple[int, int]]:
    """(level, bytes) of the data caches of core 0."""
    folder = "/sys/devices/system/cpu/cpu0/cache"
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        try:
            level, size, kind = (open(f"{folder}/{name}/{item}").read().strip() for item in ("level", "size", "type"))
        except OSError:
            continue
        if kind != "Instruction":
            unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)
            yield int(level), int(size.rstrip("KM")) * unit


def _mean(machines: list[Machine]) -> Machine:
    """Return the mean of the ranks' measurements."""

    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    def means(columns: Iterable[Sequence[float]]) -> list[float]:
        return [mean(column) for column in zip(*columns, strict=True)]

    first, readings = machines[0], [each.reading.seconds for each in machines]
    by_shape = [{rate[:4]: rate[4:] for rate in each.rates} for each in machines]
    rates = [Rate(*rate[:4], *means(each[rate[:4]] for each in by_shape)) for rate in first.rates]
    return replace(
        first,
        call=mean(each.call for each in machines),
        layer=mean(each.layer for each in machines),
        shared_core=mean(each.shared_core for each in machines),
        page=mean(each.page for each in machines),
        watchdog=mean(each.watchdog for each in machines),
        torch_byte=mean(each.torch_byte for each in machines),
        reading=replace(first.reading, seconds=[means(level) for level in zip(*readings, strict=True)]),
        rates=rates,
    )
