"""The optimizer, the learning rate, the number of epochs."""

from dataclasses import dataclass

from hpcgnn.option_fields import option


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    optimizer: str = option("adam", "optimizer; sgd has momentum 0.9", flag=True, choices=("adam", "adamw", "sgd"))
    lr: float = option(0.01, "learning rate", flag=True, least=0.0)
    weight_decay: float = option(0.0, "weight decay: L2 for adam and sgd, decoupled for adamw", flag=True, least=0.0)
    weight_decay_layers: str = option(
        "all",
        "layers with weight decay",
        choices=("all", "first"),
    )
    lr_schedule: str = option("constant", "learning rate over the epochs", choices=("constant", "cosine", "linear"))
    clip_norm: float = option(0.0, "largest global gradient norm; 0: no clipping", least=0.0)
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
        needs={"eval_every": range(1, 2**31)},
        strict=True,
    )
