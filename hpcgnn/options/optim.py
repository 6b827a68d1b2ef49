"""The optimizer, the learning rate, the number of epochs."""

from dataclasses import dataclass

from hpcgnn.declaring import Having, Need, at_least, option


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    optimizer: str = option("adam", "optimizer; sgd has momentum 0.9", flag=True, choices=("adam", "adamw", "sgd"))
    lr: float = option(0.01, "learning rate", flag=True, least=0.0)
    weight_decay: float = option(0.0, "weight decay: L2 for adam and sgd, decoupled for adamw", flag=True, least=0.0)
    weight_decay_layers: str = option(
        "all",
        "layers with weight decay",
        choices=("all", "first"),
        needs={"weight_decay": Need("above 0", lambda value: value > 0)},
    )
    lr_schedule: str = option("constant", "learning rate over the epochs", choices=("constant", "cosine", "linear"))
    clip_norm: float = option(0.0, "largest global gradient norm; 0: no clipping", least=0.0)
    ema: float = option(
        0.0,
        "decay of an average of the parameters for evaluation; 0: none",
        details="After every step the average keeps this part of itself, such as 0.99. Evaluation, the best epoch, "
        "predictions and exports use the average.",
        least=0.0,
        below=1.0,
        schedules=Having("whole_steps"),
        strict=True,
    )
    epochs: int = option(
        200,
        "number of epochs, one full-batch step each",
        details="lazy: epochs of every layer. tma: rounds, each of some steps and an average.",
        flag=True,
        least=1,
        needs={"layer_epochs": ("",)},
    )
    patience: int = option(
        0,
        "stop after this many epochs without a better validation; 0: never",
        details="lazy: go on to the next layer.",
        least=0,
        needs={"eval_every": at_least(1)},
        strict=True,
    )
