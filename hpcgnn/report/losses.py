"""Where the time of a run's epochs went, and possible remedies: the loss report, from the records of the ranks.

The time of an epoch on a rank is its own work, waits for other ranks, evaluation and checkpoints. The parts are means
over ranks of these, as shares of the time; they add up to one:

    work            the mean computing time of a rank
    imbalance       extra work of the busiest rank above the mean: all others wait for it
    shared cores    if there are fewer cores than threads: the time in which a rank had none. A rank that waits for
                    one without a core waits for the core. So this part holds such waits as well, up to the time that
                    as many cores as threads could save
    waits           the remaining waits: forward, backward, reduction, and between the phases
    evaluation, checkpoints

Other losses lie inside of these: page faults, cores taken by other programs, and the fixed cost of many short rounds.
The gain of a remedy is an upper bound: the whole loss, or the part of it within reach of the remedy.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpcgnn.report.remarks import crowds_of

# Schedules whose rows can be narrowed.
NARROWED = "sar", "bns", "stale"

# Losses and gains below this are not shown.
SHOWN = 0.02
# Processor time of one fault of a small page in a virtual machine, which takes longer than others for it.
FAULT_SECONDS = 2.5e-6
# The fixed seconds of a turn of the halo, for its messages, and calls of kernels for few rows. They were measured as
# the extra seconds of an epoch with a tiny --halo-buffer over one with a large one, for each exchange.
TURN_SECONDS = 2e-4
# Exchanges of fewer bytes take as long as shorter ones.
SHORT_BYTES = 2**16
HALO = ("halo_forward", "halo_backward")
TRAINING = ("forward", "backward", "reduction", "step", "between")
WAITS = {
    "forward": "forward",
    "backward": "backward",
    "reduction": "reduction",
    "between": "between",
    "step": "between",
}
PARTS = {
    "work": "work",
    "imbalance": "imbalance of work",
    "shared_cores": "shared cores",
    "wait_forward": "waiting for rows, forward",
    "wait_backward": "waiting for rows, backward",
    "wait_reduction": "waiting in the reduction of gradients",
    "wait_between": "waiting between the phases",
    "evaluation": "evaluation",
    "checkpoints": "checkpoints",
}

ROWS = "rows to compute"

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Loss:
    """A part of the time.

    Attributes:
        name: name of the part, or of a loss inside one.
        inside: the part that contains it; else None.
        share: share of the time.
        gain: the most that `remedy` would take off the time, as a share of it.
        found: the finding in words.
    """

    name: str
    title: str
    share: float
    gain: float
    found: str
    remedy: str
    inside: str | None = None


class _Ranks:
    """The tallies of all ranks, summed up. Times are seconds of all epochs that were counted."""

    def __init__(self, ranks: Records) -> None:
        self.records, self.parts = ranks, [rank["losses"]["parts"] for rank in ranks]
        self.epochs = ranks[0]["losses"]["epochs"]
        self.count = self.epochs[1] - self.epochs[0] + 1
        crowds = crowds_of(ranks) or []
        self.crowds, self.threads_per_core = crowds, max((n * each / cores for n, each, cores in crowds), default=1.0)
        self.total = statistics.fmean(sum(part["seconds"] for part in parts.values()) for parts in self.parts)
        self.waits = {name: self.mean(name, "waiting_seconds") for name in TRAINING}
        self.waited = sum(self.waits.values())
        self.off_core = self.mean_of_training("off_core_seconds")
        self.busy = [
            sum(self._of(parts, name, "seconds") - self._of(parts, name, "waiting_seconds") for name in TRAINING)
            - (sum(self._of(parts, name, "off_core_seconds") for name in TRAINING) if self.shared else 0.0)
            for parts in self.parts
        ]

    @property
    def shared(self) -> bool:
        """Whether there are fewer cores than threads anywhere."""
        return self.threads_per_core > 1

    @staticmethod
    def _of(parts: Mapping[str, Any], name: str, what: str) -> float:
        return parts[name][what] if name in parts else 0.0

    def mean(self, name: str, what: str) -> float:
        """Of a part, over ranks."""
        return statistics.fmean(self._of(parts, name, what) for parts in self.parts)

    def mean_of_training(self, what: str) -> float:
        """Of all parts of training together."""
        return sum(self.mean(name, what) for name in TRAINING)


def find_losses(ranks: Records, summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """{'epochs': [first, last], 'seconds': of one, in the mean, 'parts': {name of `PARTS`: share}, 'inside': {name:
    share}, 'lines': Losses as dictionaries, those with the most to gain first}. None where no epoch was run.

    ranks: records of all ranks (ranks.jsonl), with `losses`; summary: `summary.json`.
    """
    if not ranks[0]["losses"]["parts"]:
        return None
    known = _Ranks(ranks)
    parts = _parts(known)
    lines = [
        *(_imbalance(known, parts["imbalance"]), _shared_cores(known, parts["shared_cores"])),
        *(_waits(known, summary, way, parts[f"wait_{way}"]) for way in ("forward", "backward")),
        *(_reduction(known, parts["wait_reduction"]), _between(parts["wait_between"])),
        *(_evaluation(parts["evaluation"], summary), _checkpoints(parts["checkpoints"], summary)),
    ]
    inside = [_short_rounds(known, summary), _page_faults(known), _busy_cores(known), _reference(parts, summary)]
    shown = [line for line in (*lines, *inside) if line.share >= SHOWN and line.gain >= SHOWN]
    return {
        "epochs": known.epochs,
        "seconds": known.total / known.count,
        "parts": parts,
        "inside": {line.name: line.share for line in inside},
        "lines": [asdict(line) for line in sorted(shown, key=lambda line: -line.gain)],
    }


def _parts(known: _Ranks) -> dict[str, float]:
    """The shares of all parts, which add up to 1."""
    busy, rest = statistics.fmean(known.busy), known.waited
    imbalance = min(rest, max(known.busy) - busy)
    rest -= imbalance
    off_core = known.off_core if known.shared else 0.0
    saved = known.total * (1 - 1 / known.threads_per_core)
    sharing = min(rest, max(0.0, saved - off_core))
    rest -= sharing
    seconds = dict.fromkeys(PARTS, 0.0) | {
        "work": busy,
        "imbalance": imbalance,
        "shared_cores": off_core + sharing,
        "evaluation": known.mean("evaluation", "seconds"),
        "checkpoints": known.mean("checkpoint", "seconds"),
    }
    for name, waited in known.waits.items():
        seconds[f"wait_{WAITS[name]}"] += waited * rest / known.waited if known.waited else 0.0
    return {name: value / known.total for name, value in seconds.items()}


def _imbalance(known: _Ranks, share: float) -> Loss:
    """The rank with the most work: because the map gave it more, or because it is slower."""
    mean, most = statistics.fmean(known.busy), max(known.busy)
    slow = known.busy.index(most)
    rank, excess = known.records[slow], most / mean - 1 if mean > 0 else 0.0
    given, of_what = _given(known.records, slow)
    where = f"rank {rank['rank']} on {rank['host']} works {1 + excess:.2f} times as long as ranks do in the mean"
    if given - 1 >= excess / 2:
        return Loss(
            *("imbalance", "imbalance of work: the map", share, share),
            f"{where}, and has {given:.2f} times as many {of_what}",
            "a more even map: `python -m partition_tools partition` with "
            f"`--balance {'train' if of_what == ROWS else 'both'}` or more `--clusters`",
        )
    usual = statistics.median_low(known.busy)  # of two ranks the other one's
    return Loss(
        *("imbalance", "imbalance of work: a slow rank", share, max(share, (most - usual) / known.total)),
        f"{where}, but has only {given:.2f} times as many {of_what}",
        f"look at {rank['host']}: other processes, a slower processor, heat; leave it out (`srun --exclude`)",
    )


def _given(ranks: Records, slow: int) -> tuple[float, str]:
    """Return (largest load of a rank over the mean, name of this load), for the load with the worst balance by the
    map.
    """
    shares = []
    for what, values in {
        "nodes": [rank["nodes"] for rank in ranks],
        "edges": [rank["edges"] for rank in ranks],
        ROWS: [sum(rank.get("rows_computed") or ()) for rank in ranks],
    }.items():
        mean = statistics.fmean(values)
        shares.append((values[slow] / mean if mean else 0.0, what))
    return max(shares)


def _shared_cores(known: _Ranks, share: float) -> Loss:
    ranks, threads, cores = max(known.crowds, key=lambda one: one[0] * one[1] / one[2], default=(0, 0, 0))
    each = f"{ranks} rank{'s' if ranks > 1 else ''} of {threads} thread{'s' if threads > 1 else ''}"
    return Loss(
        *("shared_cores", PARTS["shared_cores"], share, min(share, 1 - 1 / known.threads_per_core)),
        f"{each} share {cores} core{'s' if cores > 1 else ''}: times and efficiencies say little",
        "a core for each thread: fewer ranks or `--threads` on a node, binding (`srun --cpu-bind=cores`, `mpiexec "
        "-bind-to core`); `hpcgnn doctor` shows who shares",
    )


def _waits(known: _Ranks, summary: Mapping[str, Any], way: str, share: float) -> Loss:
    config, sent = _config(summary), summary.get("bytes_total", {})
    dtype = "bf16" if summary["config"]["run"].get("precision") == "mixed" else config.get("halo_dtype", "fp32")
    per_epoch = {kind: sent.get(kind, 0) / len(known.records) / max(1, summary["epochs"]) for kind in HALO}
    exchanges = known.mean_of_training("exchanges") / known.count
    if config.get("intra_node") == "shared" and not any(per_epoch.values()):
        return Loss(
            *(f"wait_{way}", PARTS[f"wait_{way}"], share, share),
            "nothing is sent: the ranks of a node wait for each other before they read rows and after",
            "a map of better balance (`--balance`); fewer ranks with more `--threads` each",
        )
    narrower = {"fp32": "`--halo-dtype bf16` (half of the bytes)", "bf16": "`--halo-dtype int8` (half of the bytes)"}
    fewer = [narrower[dtype]] if dtype in narrower and config.get("schedule") in NARROWED else []
    larger = ["a larger `--halo-buffer`"] if _rounds(known) > 1 else []
    # Of short messages it is their number that costs.
    means = larger + fewer if sum(per_epoch.values()) < SHORT_BYTES * exchanges else fewer + larger
    return Loss(
        *(f"wait_{way}", PARTS[f"wait_{way}"], share, share),
        f"a rank sends {per_epoch[f'halo_{way}'] / 2**20:.3g} MiB an epoch that way, in {exchanges:,.0f} exchanges of "
        "both ways, and its work does not hide all of them",
        ", ".join([*means, "a map with fewer cut edges (`--partition`)", "a faster network", "fewer ranks"]),
    )


def _reduction(known: _Ranks, share: float) -> Loss:
    return Loss(
        *("wait_reduction", PARTS["wait_reduction"], share, share),
        f"of gradients, over {len(known.records)} ranks",
        "fewer ranks with more `--threads` each; fewer parameters (`--hidden`, `--layers`)",
    )


def _between(share: float) -> Loss:
    return Loss(
        *("wait_between", PARTS["wait_between"], share, share),
        "for the loss of all ranks, and for rank 0, which writes the records",
        "fewer ranks; a `--run-dir` on a faster file system",
    )


def _evaluation(share: float, summary: Mapping[str, Any]) -> Loss:
    every = summary["config"]["run"].get("eval_every", 1)
    return Loss(
        *("evaluation", PARTS["evaluation"], share, share),
        _every(every),
        f"`--eval-every {max(10, 10 * every)}` (a tenth of it remains), 0 never",
    )


def _every(epochs: int) -> str:
    return f"every {epochs} epochs" if epochs > 1 else "after every epoch"


def _checkpoints(share: float, summary: Mapping[str, Any]) -> Loss:
    every = summary["config"]["run"].get("checkpoint_every", 50)
    several, found = 0 < every < summary["epochs"], "one, after the last epoch"
    if several:
        found = _every(every) if every == 1 else f"{_every(every)}, and after the last"
    return Loss(
        *("checkpoints", PARTS["checkpoints"], share, share),
        found,
        ("`--checkpoint-every` less often, " if several else "more epochs (a run has at least one checkpoint), ")
        + "a `--run-dir` on a faster file system",
    )


def _short_rounds(known: _Ranks, summary: Mapping[str, Any]) -> Loss:
    """Return the fixed cost of the turns beyond those with a buffer for the whole halo."""
    rounds, turns = _rounds(known), known.mean_of_training("exchanges") / known.count
    spent = sum(known.mean(name, "seconds") for name in ("forward", "backward"))
    lost = min(spent, turns * (1 - 1 / max(1, rounds)) * TURN_SECONDS * known.count) / known.total
    buffer = _config(summary).get("halo_buffer", 0.0)
    return Loss(
        *("short_rounds", "many short rounds", lost, lost),
        f"{turns:,.0f} exchanges an epoch: the halo passes in {rounds} rounds",
        f"`--halo-buffer {buffer * rounds:.3g}` would take it in one, in as many MiB of a rank, now {buffer:g}",
        "work and waits",
    )


def _page_faults(known: _Ranks) -> Loss:
    faults = known.mean_of_training("minor_faults")
    lost = min(known.mean_of_training("system_seconds"), faults * FAULT_SECONDS) / known.total
    return Loss(
        *("page_faults", "page faults", lost, lost),
        f"{faults / known.count:,.0f} an epoch: memory that is given back and taken anew",
        "tensors that are kept from epoch to epoch (in a plugin), huge pages (docs/less-memory.md)",
        "work",
    )


def _busy_cores(known: _Ranks) -> Loss:
    """Time in which a rank neither waited nor ran, though it has cores of its own."""
    lost = 0.0 if known.shared else known.off_core / known.total
    return Loss(
        *("busy_cores", "cores taken by others", lost, lost),
        "ranks have cores of their own, but did not run all the time: other processes, files, or its other threads",
        "nodes for this job alone (`sbatch --exclusive`), binding (`srun --cpu-bind=cores`)",
        "work",
    )


def _reference(parts: Mapping[str, float], summary: Mapping[str, Any]) -> Loss:
    slow = summary.get("kernels", {}).get("native") is False
    return Loss(
        *("reference_kernels", "kernels in pure torch", parts["work"] if slow else 0.0, parts["work"] if slow else 0.0),
        "the compiled kernels do not serve",
        "install the package where a C compiler is; `hpcgnn doctor` says why there are none",
        "work",
    )


def _rounds(known: _Ranks) -> int:
    return max(int(rank.get("halo_rounds", 1)) for rank in known.records)


def _config(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    return summary["config"]["schedule"]


def loss_lines(losses: Mapping[str, Any]) -> list[str]:
    """The loss report as lines of text."""
    first, last = losses["epochs"]
    shares = [f"{PARTS[name]} {100 * share:.0f} %" for name, share in losses["parts"].items() if share >= 0.005]
    which = f"epochs {first} to {last}" if last > first else f"epoch {first}"
    lines = [f"where the time of {which} went: {', '.join(shares)}"]
    for loss in losses["lines"]:
        inside = f" (inside {loss['inside']})" if loss["inside"] else ""
        lines += [
            f"  {loss['title']}, {100 * loss['share']:.0f} %{inside}: {loss['found']}",
            f"      at the most {100 * loss['gain']:.0f} % to gain by: {loss['remedy']}",
        ]
    return lines if losses["lines"] else [*lines, f"  nothing to gain: no loss is above {100 * SHOWN:.0f} %"]
