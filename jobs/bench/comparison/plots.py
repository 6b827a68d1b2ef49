"""The comparison as a picture, from the document alone, so that it can be drawn again: seconds, processor time,
memory.
"""

from comparison.results import by_round, growth, measured_cases, spread
from hpcgnn.records import replaced_by

GB = 1e9
OURS_COLOUR, PEER_COLOUR, KERNEL_COLOUR = "tab:blue", "tab:gray", "tab:red"


def draw(document, path):
    """Write a PNG with a row of three panels for each model. Returns the path, or None if nothing was measured."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    models = [model for model in document["settings"]["models"] if measured_cases(document, model)]
    if not models:
        return None
    longest = max(len(measured_cases(document, model)) for model in models)
    figure, axes = plt.subplots(
        len(models), 3, figsize=(13, len(models) * (0.9 + 0.32 * longest)), squeeze=False, layout="constrained"
    )
    colours = {case["name"]: OURS_COLOUR if case["system"] == "hpcgnn" else PEER_COLOUR for case in document["cases"]}
    for row, model in zip(axes, models):
        _draw_model(row, document, model, colours)
    for axis in axes.flat:
        axis.tick_params(labelsize=8)
        axis.title.set_size(9)
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    graph = document["graph"]
    figure.suptitle(
        f"{graph['nodes']:,} nodes, {graph['edges']:,} edges; {document['settings']['threads']} threads in all; "
        f"{document['machine']['cpu']}; {document['date'][:10]}",
        fontsize=10,
    )
    with replaced_by(path) as temporary:
        figure.savefig(temporary, dpi=140, format="png")
    plt.close(figure)
    return path


def _draw_model(row, document, model, colours):
    cases = measured_cases(document, model)
    shades = [colours[case] for case in cases]
    seconds = [spread(by_round(document, model, case, "seconds").values()) for case in cases]
    _bars(row[0], cases, seconds, shades)
    row[0].set(title=f"{model}: seconds per epoch")

    user, system = (
        [spread(by_round(document, model, case, quantity).values())["median"] for case in cases]
        for quantity in ("user_seconds", "system_seconds")
    )
    row[1].barh(cases, user, color=shades)
    row[1].barh(cases, system, left=user, color=KERNEL_COLOUR, alpha=0.7)
    row[1].set(title=f"{model}: processor seconds per epoch (red: kernel)", yticklabels=[])

    measured = [growth(document, model, case, "sum") for case in cases]
    _bars(row[2], cases, measured, shades, GB)
    row[2].set(title=f"{model}: GB that training adds, all ranks", yticklabels=[])


def _bars(axis, cases, spreads, shades, unit=1):
    """Medians, with a line from the least to the most; nothing where a case was not measured."""
    known = [found or {"min": 0, "median": 0, "max": 0} for found in spreads]
    middle = [found["median"] / unit for found in known]
    below = [(found["median"] - found["min"]) / unit for found in known]
    above = [(found["max"] - found["median"]) / unit for found in known]
    axis.barh(cases, middle, color=shades, xerr=[below, above], error_kw={"linewidth": 1, "capsize": 2})
