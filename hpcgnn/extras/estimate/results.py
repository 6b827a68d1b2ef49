"""An estimate as plain values, with the keys of `summary.json`, and as a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from hpcgnn.extras.estimate.forecast import Forecast

PARTS = "features", "structure", "activations", "gradients", "halo_buffers", "libraries"


@dataclass(frozen=True)
class TargetNode:
    """The node on which a job would run.

    Attributes:
        libraries: bytes of a rank before it reads a graph, without the excess of its model over the reference model
            (see `Experiment`).
        shared: the part of them that the ranks of a node share.
        ranks_per_node: ranks of a node, if known.
    """

    libraries: int
    shared: int
    ranks_per_node: int | None


def as_values(forecast: Forecast, place: TargetNode) -> dict[str, Any]:
    """One number of ranks, with bytes in full."""
    shares, ranks, largest, mean = forecast.shares, forecast.shares.ranks, forecast.largest, forecast.mean
    kept = forecast.experiment.probe.kept(shares.nodes, shares.edges)
    libraries = place.libraries + forecast.experiment.code
    peak_max = libraries + largest.loaded + largest.growth
    peak_mean = libraries + mean.loaded + mean.growth
    per_node = min(ranks, place.ranks_per_node or ranks)
    on_node = (per_node - 1) * (peak_mean - place.shared) + peak_max
    nodes = -(-ranks // per_node)
    sent, messages = (
        {kind: int(getattr(each, name).sum()) for kind, each in forecast.halo.items()} for name in ("bytes", "messages")
    )
    evaluation = ranks * forecast.metrics[1] + sum(int(each.bytes.sum()) for each in forecast.evaluation.values())
    return {
        "ranks": ranks,
        "nodes": nodes if place.ranks_per_node else None,
        "training_growth_bytes": _spread(largest.growth, mean.growth, ranks),
        "loaded_bytes": _spread(largest.loaded, mean.loaded, ranks),
        "peak_rss_bytes": _spread(peak_max, peak_mean, ranks),
        "libraries_rss_bytes": _spread(libraries, libraries, ranks),
        "kept_bytes": {name: int(getattr(kept, name)()) for name in ("max", "mean", "sum")},
        "memory_parts": {"max": _parts(largest.parts, peak_max), "mean": _parts(mean.parts, peak_mean)},
        "node_bytes": on_node,
        "halo_bytes_per_epoch": sum(sent.values()),
        "intra_node": forecast.experiment.plan.config.schedule.intra_node,
        "halo_messages_per_epoch": sum(messages.values()),
        "allreduce_bytes_per_epoch": ranks * forecast.others.get("allreduce", (0, 0))[1],
        "bytes_per_epoch": sent | {kind: ranks * size for kind, (_, size) in forecast.others.items()},
        "messages_per_epoch": messages | {kind: ranks * number for kind, (number, _) in forecast.others.items()},
        "evaluation_bytes": evaluation,
        "bytes_counted": forecast.counted,
        "halo_rows_total": shares.map_rows,
        "parameters": forecast.parameters,
    }


def _spread(most: float, mean: float, ranks: int) -> dict[str, int]:
    return {"max": round(most), "mean": round(mean), "sum": round(mean * ranks)}


def _parts(parts: dict[str, int], peak: int) -> dict[str, int]:
    """Return the parts completed with libraries, and with memory outside of the account."""
    return {**parts, "libraries": peak - sum(parts.values())}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The estimate for people: memory of the largest rank by part, traffic, and seconds where they are known."""
    headers = ["ranks", "largest\nrank", "mean\nrank", *(name.replace("_", "\n") for name in PARTS)]
    headers += ["sent per\nepoch", "messages"]
    headers += ["s/epoch,\nleast", "s/epoch,\nmost"] if "seconds" in rows[0] else []
    lines = []
    for row in rows:
        peak, parts, sent = row["peak_rss_bytes"], row["memory_parts"]["max"], sum(row["bytes_per_epoch"].values())
        sizes = peak["max"], peak["mean"], *(parts[name] for name in PARTS), sent
        line = [row["ranks"], *map(size_in_words, sizes), f"{sum(row['messages_per_epoch'].values()):,}"]
        line += [f"{sum(parts.values()):.3g}" for parts in row.get("seconds", {}).values()]
        lines.append(line)
    return tabulate(lines, headers, tablefmt="simple", disable_numparse=True, stralign="right")


def size_in_words(value: float) -> str:
    """Bytes in the largest unit that leaves at least 1."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = 0 if value < 1 else min(int(math.log2(value)) // 10, len(units) - 1)
    return f"{value / 1024**power:.3g} {units[power]}"
