"""Named sets of options: `--preset NAME`. Files and the command line override them."""

from typing import Any, NamedTuple


class Preset(NamedTuple):
    """about: one line for the log and the page. options: {key: value}."""

    about: str
    options: dict[str, Any]


#: Of Luo, Shi, Wu: Classic GNNs are strong baselines (NeurIPS 2024), as of ogbn-arxiv in their scripts.
_TUNED = {
    "norm": "batch",
    "jumping": "last",
    "dropout": 0.5,
    "input_dropout": "none",
    "lr": 0.0005,
    "weight_decay": 0.0005,
    "epochs": 2000,
}

PRESETS = {
    "sar-2022": Preset(
        "SAR as published (Mostafa, MLSys 2022): all boundary rows, all layers, nothing kept of the input",
        {"schedule": "sar", "halo": "rows", "prune": "none", "keep_input": "never", "input_dropout": "raw"},
    ),
    "tuned-gcn": Preset(
        "GCN of Luo et al. (2024) for ogbn-arxiv: linear residual, batch norm, linear head",
        {"model": "gcn", "layers": 5, "hidden": 512, "linear_residual": True, **_TUNED},
    ),
    "tuned-sage": Preset(
        "GraphSAGE of Luo et al. (2024) for ogbn-arxiv: batch norm, linear head",
        {"model": "sage", "layers": 4, "hidden": 256, **_TUNED},
    ),
    "tuned-gat": Preset(
        "GAT of Luo et al. (2024) for amazon-ratings: one head, linear residual, batch norm, linear head",
        {
            "model": "gat",
            "layers": 4,
            "hidden": 512,
            "heads": 1,
            "linear_residual": True,
            **_TUNED,
            "lr": 0.001,
            "weight_decay": 0.0,
            "epochs": 2500,
        },
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
