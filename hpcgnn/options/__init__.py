"""Every option of a run, declared once: its default, its help, its range.

The command line, the TOML file and the errors are derived from these declarations (see hpcgnn/config.py).
"""

from dataclasses import dataclass

from hpcgnn.declaring import YEAR, Above, AtLeast, option
from hpcgnn.options.run import RunConfig
from hpcgnn.options.task import LINKS, TaskConfig


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    graph: str = option("", "graph file made by `python -m partition_tools`", required=True)
    partition: str = option("", "name of the stored cluster map to use (default: the one made by default)")
    auto_partition: bool = option(
        False,
        "make a map for this number of ranks if the file has none",
        needs={"assignment": ("metis",)},
    )
    self_loops: str = option(
        "auto",
        "add a self loop to nodes that have none, keep the edges as they are, or what the model wants",
        choices=("auto", "add", "keep"),
    )
    inductive: bool = option(
        False,
        "sar: train on the subgraph of the training nodes, which has neither features nor edges of others, and "
        "evaluate on the whole graph. Takes memory for that subgraph besides",
        on_resume="same",
    )


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    model: str = option("gcn", "model to train", choices="models")
    plugin: str = option("", "Python file that registers further models (see `hpcgnn.nn.registry.register`)")
    layers: int = option(3, "number of layers (hops for sgc)", least=1, most=10_000)
    hidden: int = option(
        256,
        "width of hidden layers",
        least=1,
        by_model=True,
        needs={"layers": AtLeast(2), "model": ("rgcn", "rgat"), "jumping": ("cat", "max")},
        also={"task": (LINKS,)},  # the width of embeddings
    )
    dropout: float = option(0.5, "dropout probability before every layer", least=0.0, below=1.0)
    edge_dropout: float = option(
        0.0,
        "sar: probability with which an edge is left out of an epoch of training, in all layers; of an undirected "
        "graph an edge and its reverse together; self loops stay, and evaluation uses all edges",
        least=0.0,
        below=1.0,
        schedules=("sar",),
        by_model=True,
        strict=True,
    )
    input_dropout: str = option(
        "aggregate",
        "what the first layer's dropout acts on: the kept aggregate of the features, the raw features "
        "(an exchange per epoch where they are dense), or nothing",
        choices=("aggregate", "raw", "none"),
    )
    keep_input: str = option(
        "auto",
        "aggregate constant dense features once and keep the result: where it pays, always, or never",
        choices=("auto", "always", "never"),
        by_model=True,
        needs={"input_dropout": ("aggregate", "none")},
        strict=True,
    )
    aggregator: str = option(
        "mean",
        "what sage takes of the neighbours: their mean, their largest elements, or those after a layer of their own",
        choices=("mean", "max", "pool"),
        by_model=True,
        strict=True,
    )
    heads: int = option(
        4,
        "attention heads of hidden layers (gat, gatv2, transformer, rgat); --hidden is the width of each",
        least=1,
        by_model=True,
        needs={"layers": AtLeast(2), "jumping": ("cat", "max")},
    )
    out_heads: int = option(
        1,
        "attention heads of the last layer, each as wide as the classes, averaged",
        least=1,
        by_model=True,
        needs={"jumping": ("none",)},
    )
    attention_dropout: float = option(0.0, "dropout of attention coefficients", least=0.0, below=1.0, by_model=True)
    negative_slope: float = option(0.2, "slope of LeakyReLU in attention (gat, gatv2, rgat)", least=0.0, by_model=True)
    edge_term: str = option(
        "none",
        "what an edge adds to its logits in gat: nothing, its weight times a learned number per head, or a learned "
        "number per head for its type",
        choices=("none", "weight", "type"),
        by_model=True,
        strict=True,
    )
    hops: int = option(
        10,
        "hops of appnp after its layers; without any, 0, it is a perceptron, which sees no neighbours",
        least=0,
        most=10_000,
        by_model=True,
    )
    teleport: float = option(
        0.1, "part of a node's own output that each hop of appnp takes back", least=0.0, most=1.0, by_model=True
    )
    bases: int = option(4, "bases that the relations of rgcn and rgat share", least=1, by_model=True)
    norm: str = option(
        "none",
        "normalisation after hidden layers; batch uses the statistics of all nodes",
        choices="norms",
        by_model=True,
        needs={"layers": AtLeast(2), "jumping": ("cat", "max")},
    )
    residual: bool = option(
        False,
        "add the input of hidden layers to their output",
        by_model=True,
        needs={"layers": AtLeast(3), "jumping": ("cat", "max")},
    )
    jumping: str = option(
        "none",
        "let a linear map make the logits of what all layers hand on, which are then all hidden ones: joined (cat), or "
        "the largest of their elements (max); none: the last layer makes them",
        choices=("none", "cat", "max"),
        by_model=True,
        strict=True,
    )


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    optimizer: str = option("adam", "optimizer", choices=("adam", "adamw", "sgd"))
    lr: float = option(0.01, "learning rate", least=0.0, needs={"layer_lr": ("",), "finetune": AtLeast(1)})
    momentum: float = option(0.9, "momentum of sgd", least=0.0, below=1.0, needs={"optimizer": ("sgd",)})
    weight_decay: float = option(0.0, "weight decay (L2 for adam and sgd, decoupled for adamw)", least=0.0)
    weight_decay_layers: str = option(
        "all",
        "layers that weight decay acts on",
        choices=("all", "first"),
        needs={"weight_decay": Above(0)},
    )
    lr_schedule: str = option(
        "constant", "learning rate over the epochs", choices=("constant", "cosine", "linear", "step")
    )
    warmup_epochs: int = option(0, "epochs in which the learning rate rises linearly to --lr", least=0)
    lr_step_epochs: int = option(
        100,
        "epochs between decays of --lr-schedule step",
        least=1,
        needs={"lr_schedule": ("step",)},
        strict=True,
    )
    lr_step_factor: float = option(
        0.5,
        "factor of each decay of --lr-schedule step",
        least=0.0,
        needs={"lr_schedule": ("step",)},
        strict=True,
    )
    clip_norm: float = option(0.0, "clip the global gradient norm to this value; 0 for no clipping", least=0.0)
    ema: float = option(
        0.0,
        "evaluate, keep as the best, predict with and export an exponential moving average of the parameters, which "
        "after every step keeps this part of itself, such as 0.99, and takes the rest from them; 0 for the "
        "parameters themselves",
        least=0.0,
        below=1.0,
        schedules=("sar", "bns", "stale"),
        strict=True,
    )
    epochs: int = option(
        200,
        "number of epochs; each is one full-batch step (lazy: of every layer; tma: steps of every rank, or averages "
        "with --average-seconds)",
        least=1,
        needs={"layer_epochs": ("",)},
    )
    patience: int = option(
        0,
        "stop (lazy: go on to the next layer) when the validation metric has got no better for so many epochs; 0 never",
        least=0,
        needs={"eval_every": AtLeast(1)},
        strict=True,
    )


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    schedule: str = option("sar", "communication schedule", choices="schedules")
    halo_buffer: float = option(
        8.0,
        "MiB for all communication buffers of a rank, whatever the number of ranks; large values give "
        "the one-shot exchange, small ones sequential aggregation in fine steps",
        least=0.0,
        most=2.0**33,
    )
    layer_epochs: str = option(
        "",
        "lazy: epochs of each layer, one number or a list such as 100,100,200 (default: --epochs)",
        schedules=("lazy",),
    )
    layer_lr: str = option(
        "",
        "lazy: learning rate of each layer, one number or a list such as 0.01,0.005 (default: --lr)",
        schedules=("lazy",),
    )
    warm_start: bool = option(
        False,
        "lazy: start a layer where the one before it ended, as the identity with that one's head (sage, gcn, gat), "
        "or else with its parameters of the same shapes",
        schedules=("lazy",),
    )
    finetune: int = option(
        0,
        "lazy: epochs of exact training (as sar) of all layers together after the last layer",
        least=0,
        schedules=("lazy",),
    )
    finetune_lr: float = option(
        0.0,
        "lazy: learning rate of --finetune; 0 takes --lr",
        least=0.0,
        schedules=("lazy",),
    )
    frozen_halo: str = option(
        "keep",
        "lazy, for layers whose neighbours are weighed anew every epoch (gat and others) or whose features are "
        "sparse: keep a copy of the halo's rows, which on bad maps is larger than a rank's share, or refetch them "
        "every epoch",
        choices=("keep", "refetch"),
        schedules=("lazy",),
    )
    average_steps: int = option(
        0,
        "tma: average the ranks' parameters after so many steps of each",
        least=0,
        schedules=("tma",),
        on_resume="same",
    )
    average_seconds: float = option(
        0.0,
        "tma: average the ranks' parameters after so many seconds on rank 0's clock",
        least=0.0,
        schedules=("tma",),
        most=YEAR,
    )
    average_weights: str = option(
        "uniform",
        "tma: weigh every trainer alike, or by its training nodes",
        choices=("uniform", "train"),
        schedules=("tma",),
    )
    average_optimizer: str = option(
        "keep",
        "tma: what becomes of the optimizers' states at an average: each rank keeps its own, starts anew, or takes "
        "their average",
        choices=("keep", "reset", "average"),
        schedules=("tma",),
    )
    correct_every: int = option(
        0,
        "tma: one exact step on the whole graph, as sar, after so many averages; 0 never",
        least=0,
        schedules=("tma",),
    )
    drop_ranks: str = option(
        "",
        "tma: ranks that are lost from the start, to see what that costs, such as 1,3",
        schedules=("tma",),
        on_resume="same",
    )
    assignment: str = option(
        "metis",
        "which nodes a rank owns: those of the stored map; super-nodes: the file's clusters dealt at random; "
        "random-nodes: nodes at random. For experiments: the halo is then large",
        choices=("metis", "super-nodes", "random-nodes"),
    )
    private_features: bool = option(
        False,
        "refuse whatever would send features of nodes to other ranks more than once in a run, and list in summary.json "
        "what left each rank",
    )
    halo: str = option(
        "auto",
        "what travels between ranks: rows, those of all boundary nodes; least, rows or sums of rows, whichever are "
        "fewer, where layers sum their neighbours' rows (gcn, sage with --aggregator mean, gin, sgc, appnp) and "
        "the schedule is sar, lazy, stale or tma; exact; auto, least where that can be done and saves a twentieth of "
        "the rows",
        choices=("auto", "rows", "least"),
    )
    intra_node: str = option(
        "messages",
        "how ranks of one node come by each other's rows: messages, as those of other nodes; shared (sar; gcn, sage "
        "with --aggregator mean, gin, sgc, appnp, gat), they read them where they are, in shared memory: neither "
        "copies nor buffers; results differ by rounding alone",
        choices=("messages", "shared"),
    )
    halo_dtype: str = option(
        "fp32",
        "how features and their gradients travel between ranks in training: fp32 as they are (in fp64 with "
        "--precision fp64), bf16 or fp16 in half the bytes, int8, int4 and int2 in a fourth, an eighth and "
        "a sixteenth with a scale per row and random rounding; auto (sar), int2, int4 or int8 for each turn of an "
        "exchange, for the least noise within --halo-bits; logits of attention, evaluation and what is exchanged once "
        "stay as they are",
        choices=("fp32", "bf16", "fp16", "int8", "int4", "int2", "auto"),
        needs={"schedule": ("sar", "bns", "stale"), "correct_every": AtLeast(1)},
    )
    halo_bits: float = option(
        4.0,
        "--halo-dtype auto: the most bits that a narrowed number may take in the mean",
        least=2.0,
        most=8.0,
        needs={"halo_dtype": ("auto",)},
    )
    reduce_dtype: str = option(
        "fp32",
        "how gradients of parameters travel between ranks: fp32 as they are (in fp64 with --precision fp64); bf16, "
        "rounded, in half the bytes, added in fp32 by one rank for each share of them, which sends the rounded sum to "
        "all: 2 (P - 1) messages of a rank",
        choices=("fp32", "bf16"),
        needs={"schedule": ("sar", "lazy", "bns", "stale"), "correct_every": AtLeast(1)},
    )
    reduce_bucket: float = option(
        1.0,
        "gradients are summed over ranks in parts of whole layers and at least so many MiB, from the last layer to the "
        "first, each while the backward pass of earlier layers goes on; a model with no more than one such part is "
        "summed at the end, as all are with 0, and with transports that cannot do both at a time (--comm oneccl, and "
        "--comm torch with another backend than gloo)",
        least=0.0,
        most=1e6,
        needs={"schedule": ("sar", "lazy", "bns", "stale"), "correct_every": AtLeast(1)},
    )
    prune: str = option(
        "auto",
        "sar: compute and send in training only what the loss can see (the last layer for the training nodes, the "
        "one before for their neighbours too, and so on), where the model can and it saves half of the rows (gat: "
        "four in ten); exact. none computes all rows",
        choices=("auto", "none"),
        schedules=("sar",),
    )
    boundary_rate: float = option(
        0.1,
        "bns: the probability p with which a boundary node is used by another rank in an epoch; bytes fall to p of "
        "those of sar (gat: 3/2 of that), p = 1 gives what sar gives, p = 0 leaves the ranks by themselves; "
        "evaluation uses all nodes",
        least=0.0,
        most=1.0,
        schedules=("bns",),
    )
    stale_epochs: int = option(
        1,
        "stale: use the rows and gradients that other ranks sent so many epochs ago, and exchange new ones in the "
        "background; 0 is sar. Takes memory for so many epochs, and one more, of the halo of all layers",
        least=0,
        schedules=("stale",),
    )
    stale_smoothing: float = option(
        0.0,
        "stale: use an average of the old rows that keeps this part of itself in every epoch; 0 uses them as they are",
        least=0.0,
        below=1.0,
        schedules=("stale",),
        needs={"stale_epochs": AtLeast(1)},
    )


SECTIONS = {
    "data": DataConfig,
    "task": TaskConfig,
    "model": ModelConfig,
    "optim": OptimConfig,
    "schedule": ScheduleConfig,
    "run": RunConfig,
}
