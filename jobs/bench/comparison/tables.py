"""The comparison as text: a table for each model, with the absent and failed ones, from the document alone."""

from tabulate import tabulate

from comparison.cases import OURS
from comparison.results import (
    by_round,
    growth,
    last_losses,
    measured_cases,
    one_rank_of,
    own_part,
    ratios,
    reference_of,
    spread,
    startup,
)

MB = 1e6


def render(document):
    """All tables, in Markdown."""
    parts = [_heading(document)]
    for model in document["settings"]["models"]:
        if measured_cases(document, model):
            parts.append(f"## {model}\n\n{_table(document, model)}\n\n{_systems(document, model)}")
    parts.append(_not_measured(document))
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(document):
    graph, machine, settings = document["graph"], document["machine"], document["settings"]
    return (
        f"{document['date']}, {machine['cpu']}, {settings['threads']} threads in all; {graph['nodes']:,} nodes, "
        f"{graph['edges']:,} edges, {graph['features']} features, {graph['classes']} classes. Medians over "
        f"{settings['rounds']} rounds (least to most) of the median epoch, {settings['discard']} first epochs "
        "discarded; ratio: share of the reference in the same round. less constant: the growth of all ranks without "
        "that of as many ranks on the small graph. start-up: reading the graph and planning, in brackets in epochs."
    )


def _table(document, model):
    reference = reference_of(document, model)
    cases = measured_cases(document, model)
    rows = [_row(document, model, case, reference) for case in cases]
    small = document["settings"]["constant_nodes"]
    headers = [
        "case",
        "s/epoch",
        f"ratio to {reference}",
        "CPU s/epoch",
        "ratio",
        "of it system",
        "faults/epoch",
        "growth MB, sum",
        "ratio",
        "most of a rank",
        "start-up s",
        "loss",
    ]
    if small:
        headers += [f"sum on {small:,} nodes", "less constant", "ratio", "of one rank's"]
        rows = [row + _own_part(document, model, case, reference) for row, case in zip(rows, cases, strict=True)]
    align = ["left", *["right"] * (len(headers) - 1)]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=align)


def _row(document, model, case, reference):
    seconds, cpu, system, faults = (
        by_round(document, model, case, quantity)
        for quantity in ("seconds", "cpu_seconds", "system_seconds", "minor_faults")
    )
    base = {q: by_round(document, model, reference, q) for q in ("seconds", "cpu_seconds")}
    total, most = growth(document, model, case, "sum"), growth(document, model, case, "max")
    base_growth, (started, in_epochs) = growth(document, model, reference, "sum"), startup(document, model, case)
    return [
        case,
        _spread(spread(seconds.values()), 3),
        _spread(ratios(seconds, base["seconds"]), 2),
        _spread(spread(cpu.values()), 2),
        _spread(ratios(cpu, base["cpu_seconds"]), 2),
        _middle(ratios(system, cpu), 100, 0, " %"),
        _middle(spread(faults.values()), 1, 0),
        _spread(total, 0, MB),
        "–" if not total or not base_growth else f"{total['median'] / base_growth['median']:.2f}",
        _middle(most, 1 / MB, 0),
        _middle(started, 1, 1) + ("" if started is None else f" ({_middle(in_epochs, 1, 1)})"),
        _middle(last_losses(document, model, case), 1, 3),
    ]


def _own_part(document, model, case, reference):
    """The growth on the small graph, the growth without it, and that as a share of the reference's and of our one
    rank's.
    """
    own, alone = own_part(document, model, case), one_rank_of(document, model, case)
    bases = [growth(document, model, name, "sum") for name in (reference, alone)]
    shares = ["–" if own is None or not base else f"{own / base['median']:.2f}" for base in bases]
    constant = growth(document, model, case, "sum", constant=True)
    return [_middle(constant, 1 / MB, 0), "–" if own is None else f"{own / MB:,.0f}", *shares]


def _systems(document, model):
    """Which version of each system ran, and how."""
    lines, systems = {}, {case["name"]: case["system"] for case in document["cases"]}
    for sample in document["samples"]:
        system = systems[sample["case"]]
        if sample["model"] == model and system not in lines:
            own = {OURS: OURS, "pyg": "torch_geometric", "sar": "sar-gnn"}.get(system, system)
            lines[system] = f"{system} {sample['versions'].get(own, '')}: {sample['format']}"
    return "; ".join(lines.values()) + "."


def _spread(found, digits, unit=1):
    if found is None:
        return "–"
    least, middle, most = (f"{found[key] / unit:,.{digits}f}" for key in ("min", "median", "max"))
    return middle if least == most else f"{middle} ({least} to {most})"


def _middle(found, factor, digits, unit=""):
    return "–" if found is None else f"{found['median'] * factor:,.{digits}f}{unit}"


def _not_measured(document):
    lines = [f"* {entry['system']}: absent: {entry['reason']}" for entry in document["absent"]]
    lines += [
        f"* {entry['model']}, {entry['case']}, {entry['label']}: failed: {entry['reason']}"
        for entry in document["failures"]
    ]
    return "Not measured:\n\n" + "\n".join(lines) if lines else ""
