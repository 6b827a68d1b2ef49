"""Named sets of options: `--preset NAME`. Files and the command line override them."""

from typing import Any, NamedTuple


class Preset(NamedTuple):
    """about: one line for the log and the page. options: {key: value}."""

    about: str
    options: dict[str, Any]


PRESETS = {
    "sar-2022": Preset(
        "SAR as published (Mostafa, MLSys 2022): all boundary rows, all layers, nothing kept of the input",
        {"schedule": "sar", "halo": "rows", "prune": "none", "keep_input": "never", "input_dropout": "raw"},
    ),
    "random-tma": Preset(
        "RandomTMA: random nodes, models averaged after every 10 steps",
        {"schedule": "tma", "partition": "random-nodes", "average_steps": 10},
    ),
    "super-tma": Preset(
        "SuperTMA: random clusters, models averaged after every 10 steps",
        {"schedule": "tma", "partition": "super-nodes", "average_steps": 10},
    ),
}
