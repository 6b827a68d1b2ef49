"""Options of earlier versions that are gone: files that hold their usual value are read, others are refused."""

from typing import Any, NamedTuple


class Removed(NamedTuple):
    """usual: the value with the present behaviour. remedy: the way to go on."""

    usual: Any
    remedy: str


REMOVED = {
    "torch_backend": Removed("gloo", "use comm = 'torch' for gloo, or 'oneccl'"),
    "finetune_lr": Removed(0.0, "--finetune trains with --lr; give the layers' own rates by --set schedule.layer_lr"),
    "average_optimizer": Removed("keep", "each rank keeps the state of its optimizer"),
    "average_weights": Removed("uniform", "ranks with training nodes have equal weights"),
    "stale_smoothing": Removed(0.0, "old rows are used unchanged"),
    "drop_ranks": Removed("", "start the job on fewer ranks"),
    "halo_bits": Removed(4.0, "--halo-dtype auto takes 4 bits in the mean; int2, int4 and int8 are fixed widths"),
}
