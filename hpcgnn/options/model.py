"""The layers of a model: their kind, number, width, dropout and extras."""

from dataclasses import dataclass

from hpcgnn.option_fields import Having, option


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    model: str = option("gcn", "model to train", flag=True, choices="models")
    plugin: str = option("", "Python file that registers models and schedules (docs/extending.md)", flag=True)
    layers: int = option(3, "number of layers (sgc: hops)", flag=True, least=1, most=10_000)
    hidden: int = option(
        256,
        "width of hidden layers; of attention, width of each head",
        flag=True,
        least=1,
        by_model=True,
        also={"task": Having("embeds")},
    )
    dropout: float = option(0.5, "dropout probability before every layer", flag=True, least=0.0, below=1.0)
    input_dropout: str = option(
        "scaled",
        "first layer's dropout: kept aggregate (scaled or not), raw features, none",
        details="scaled: 1/√d of the noise at a node with d in-edges, as a mean of d dropped rows has. aggregate: "
        "all of it. Dropout of raw dense features takes an exchange in every epoch.",
        choices=("scaled", "aggregate", "raw", "none"),
    )
    keep_input: str = option(
        "auto",
        "aggregate constant dense features once and keep the result",
        details="auto: where it pays.",
        choices=("auto", "always", "never"),
        by_model=True,
        needs={"input_dropout": ("scaled", "aggregate", "none")},
        strict=True,
    )
    keep: str = option(
        "exact",
        "format of what layers keep for the gradient",
        details="int8: rounded at random to a byte; gradients are right in the mean (docs/less-memory.md).",
        choices=("exact", "int8"),
        on_resume="same",
    )
    heads: int = option(
        4,
        "attention heads of hidden layers",
        least=1,
        by_model=True,
    )
    out_heads: int = option(
        1,
        "attention heads of the last layer, averaged",
        details="Each head is as wide as the classes.",
        least=1,
        by_model=True,
    )
    attention_dropout: float = option(0.0, "dropout of attention coefficients", least=0.0, below=1.0, by_model=True)
    hops: int = option(
        10,
        "appnp: hops after its layers",
        details="With 0 hops the model is a perceptron, which sees no neighbours.",
        least=0,
        most=10_000,
        by_model=True,
    )
    teleport: float = option(0.1, "appnp: share of a node's own output in each hop", least=0.0, most=1.0, by_model=True)
    bases: int = option(4, "rgcn, rgat: bases that the relations share", least=1, by_model=True)
    norm: str = option(
        "none",
        "normalisation after hidden layers",
        details="batch uses the statistics of all nodes.",
        flag=True,
        choices="norms",
        by_model=True,
    )
    residual: bool = option(
        False,
        "add the input of hidden layers to their output",
        by_model=True,
    )
    linear_residual: bool = option(
        False,
        "add a linear map of each layer's input before the norm",
        details="GraphSAGE and transformer layers have such a map already.",
        by_model=True,
    )
    jumping: str = option(
        "none",
        "logits by a linear map of all layers' outputs, or the last",
        details="The outputs are joined (cat), added (sum) or as their maximum (max). All layers are then hidden.",
        choices=("none", "cat", "max", "sum", "last"),
        by_model=True,
        strict=True,
    )
