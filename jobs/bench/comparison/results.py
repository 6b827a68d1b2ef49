"""Numbers of the tables from the raw samples of a comparison's document (see compare.py), and nothing but that
document.
"""

import statistics

from comparison.cases import OURS


def spread(values):
    """{min, median, max} of numbers, or None if there are none."""
    values = list(values)
    if not values:
        return None
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def per_epoch(sample, quantity, discard):
    """The median over a sample's epochs, without the first `discard`, of a key of them, or of cpu_seconds."""
    counted = sample["epochs"][discard:]
    if quantity == "cpu_seconds":
        return statistics.median(epoch["user_seconds"] + epoch["system_seconds"] for epoch in counted)
    return statistics.median(epoch[quantity] for epoch in counted)


def by_round(document, model, case, quantity):
    """{round: value per epoch} of a case."""
    return {
        sample["round"]: per_epoch(sample, quantity, document["settings"]["discard"])
        for sample in _samples(document, model, case, constant=False)
    }


def ratios(values, reference):
    """The spread of value / reference over the rounds that have both. Both: {round: value}."""
    return spread(values[number] / reference[number] for number in values if reference.get(number))


def growth(document, model, case, over, constant=False):
    """The spread over rounds of the growth of memory in training in bytes, of all ranks together (over="sum") or of the
    rank with the most ("max"). constant: the same on the small graph. None if it was not measured."""
    found = _samples(document, model, case, constant)
    return spread(sample["growth_bytes"][over] for sample in found if sample["growth_bytes"] is not None)


def last_losses(document, model, case):
    """The spread over rounds of the loss in the last epoch that all cases of the model reached."""
    everything = [s for s in document["samples"] if s["model"] == model and not s["constant"]]
    epoch = min(len(sample["epochs"]) for sample in everything) - 1
    return spread(sample["epochs"][epoch]["loss"] for sample in _samples(document, model, case, constant=False))


def measured_cases(document, model):
    """Names of the cases of a model that have a sample, in the order of the comparison."""
    having = {s["case"] for s in document["samples"] if s["model"] == model and not s["constant"]}
    return [case["name"] for case in document["cases"] if case["name"] in having]


def reference_of(document, model):
    """The base of the ratios: the case that was asked for, else the first peer, else the first case; None without
    any.
    """
    names, wanted = measured_cases(document, model), document["settings"]["reference"]
    peers = [case["name"] for case in document["cases"] if case["system"] != "hpcgnn" and case["name"] in names]
    return wanted if wanted in names else (peers or names or [None])[0]


def own_part(document, model, case):
    """The growth of all ranks less that on the small graph, the constant of the processes: bytes, or None."""
    total, constant = growth(document, model, case, "sum"), growth(document, model, case, "sum", constant=True)
    return total["median"] - constant["median"] if total and constant else None


def one_rank_of(document, model, case):
    """Our case on one rank with the same options, or None if that was not measured or the case is not ours."""
    by_name = {entry["name"]: entry for entry in document["cases"]}
    for name in measured_cases(document, model):
        one, same = by_name[name], by_name[case]
        alike = one.get("variant") == same.get("variant")
        if one["system"] == same["system"] == OURS and one.get("ranks") == 1 and alike:
            return name
    return None


def startup(document, model, case):
    """(the spread of seconds to read and plan, the same in epochs of its own), or (None, None) for those who say
    nothing.
    """
    seconds, epochs = {}, by_round(document, model, case, "seconds")
    for sample in _samples(document, model, case, constant=False):
        if sample.get("startup_seconds") is not None:
            seconds[sample["round"]] = sample["startup_seconds"]
    return spread(seconds.values()), ratios(seconds, epochs)


def _samples(document, model, case, constant):
    return [s for s in document["samples"] if (s["model"], s["case"], s["constant"]) == (model, case, constant)]
