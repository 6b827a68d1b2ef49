"""Options of earlier versions that are gone: files that hold their usual value are read, others are refused."""

from typing import Any, NamedTuple

from hpcgnn.errors import ConfigError


class Removed(NamedTuple):
    """An option that is gone.

    Attributes:
        usual: the value with the present behaviour.
        remedy: the way to go on.
        trained: the option acted in training alone, so that a run with any value is evaluated and predicts.
    """

    usual: Any
    remedy: str
    trained: bool = True


_EARLIER = "leave it out, or train with version 0.4.0"
REMOVED = {
    "consistency": Removed(0.0, _EARLIER),
    "consistency_decay": Removed(0.99, _EARLIER),
    "consistency_confidence": Removed(0.7, _EARLIER),
    "consistency_warmup": Removed(0, _EARLIER),
    "distill": Removed("", _EARLIER),
    "distill_weight": Removed(1.0, _EARLIER),
    "distill_temperature": Removed(1.0, _EARLIER),
    "distill_confidence": Removed(0.0, _EARLIER),
    "hop_attention": Removed("none", "leave it out: sign joins the hops", trained=False),
    "torch_backend": Removed("gloo", "use comm = 'torch' for gloo, or 'ccl' for oneccl_bindings_for_pytorch"),
    "finetune_lr": Removed(0.0, "all layers are trained with --lr"),
    "layer_lr": Removed("", "all layers are trained with --lr"),
    "average_optimizer": Removed("keep", "each rank keeps the state of its optimizer"),
    "average_weights": Removed("uniform", "ranks with training nodes have equal weights"),
    "stale_smoothing": Removed(0.0, "old rows are used unchanged"),
    "reduce_dtype": Removed("fp32", "gradients of parameters are summed in their own type, by fewer messages"),
    "drop_ranks": Removed("", "start the job on fewer ranks"),
    "spare_core": Removed(False, "give the number of threads: --threads, one less than the cores of a rank"),
    "edge_term": Removed(
        "none", "import the weights as features of edges, which gat reads; rgat reads types", trained=False
    ),
    "initial_weights": Removed("pyg", "layers start as PyG's do, which learn sooner"),
    "warm_start": Removed(False, "leave it out: each layer starts from new weights"),
    "reduce_bucket": Removed(1.0, "leave it out: all gradients are one sum"),
    "ema": Removed(0.0, _EARLIER),
    "watch": Removed("", "take a plugin of the loop, whose after_record gets every record (docs/extending.md)"),
    "halo_bits": Removed(4.0, "--halo-dtype int8 is a fixed width"),
    "private_features": Removed(False, "leave it out: summary.json has the bytes of each kind that left a rank"),
    "keep_input_dtype": Removed("auto", "--precision mixed keeps the aggregate in bf16", trained=False),
    "negative_slope": Removed(0.2, "the slope of LeakyReLU in attention is 0.2, as in PyG and DGL", trained=False),
    "lr_step_epochs": Removed(100, "use --lr-schedule cosine or linear"),
    "lr_step_factor": Removed(0.5, "use --lr-schedule cosine or linear"),
    "finetune": Removed(0, "train the layers together in a run of --schedule sar"),
    "frozen_halo": Removed("keep", "ranks keep the rows; take more ranks, or --schedule sar, which keeps none"),
    "momentum": Removed(0.9, "sgd has momentum 0.9; or take adam"),
    "warmup_epochs": Removed(0, "leave it out: --clip-norm bounds the first steps, too"),
    "aggregator": Removed(
        "mean", "write the layer as a plugin: graph.propagate takes the maximum, too (docs/extending.md)", trained=False
    ),
    "auto_partition": Removed(False, "leave it out: a map is made where the file has none for the number of ranks"),
    "assignment": Removed("metis", "use partition = 'super-nodes' or 'random-nodes' of [data]"),
    "matmul": Removed("highest", "--precision mixed stores and sends hidden states in bf16"),
    "tensorboard": Removed(False, "metrics.jsonl has every epoch; or take a plugin of the loop (docs/extending.md)"),
    "log_every": Removed(0, "leave it out: metrics.jsonl has every epoch"),
    "label_smoothing": Removed(0.0, "leave it out, or take a loss of your own (docs/python.md)"),
    "class_weights": Removed("none", "--metric macro-f1 chooses the epoch by all classes; or take a loss of your own"),
}
#: {option: {value: the way to go on}} of values that are gone. They acted in training alone.
REMOVED_VALUES = {
    "halo_dtype": {
        "auto": "int8 has the same accuracy and twice the bytes",
        "int2": "int8 has four times the bytes, and a smaller error",
        "int4": "int8 has the same accuracy and twice the bytes",
        "fp16": "bf16 has as many bytes, and the range of fp32",
    },
    "keep": dict.fromkeys(("again", "remade", "least"), "take more ranks: each has less to keep; or --keep int8"),
    "lr_schedule": {"step": "use cosine or linear"},
}


def refuse_removed(name: str, value: Any, origin: str) -> None:
    """Raise ConfigError for an option that is gone, if its value is not the usual one."""
    if value != REMOVED[name].usual:
        raise ConfigError(f"{origin}: {name} = {value!r} is of an earlier version: {REMOVED[name].remedy}")
