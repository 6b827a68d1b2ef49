"""The option that a user probably meant by a name that does not exist: first by meaning, then by spelling, else none.

People bring the names of other libraries along. A guess by letters alone led from --batch-size to --eval-every.
"""

from collections.abc import Iterable

from hpcgnn.likely_names import likely
from hpcgnn.options.removed import REMOVED

_BATCHES = (
    "there are no batches: every step sees the whole graph, and --halo-buffer bounds the memory for rows of other ranks"
)
_SAMPLING = (
    "nothing is sampled: every step sees all neighbours (--schedule bns takes a random part of those on other ranks)"
)
_DEVICE = "it runs on CPUs; the launcher starts the ranks, and --threads says how many threads each has"
_RANKS = "the launcher starts the ranks: mpiexec -n N hpcgnn train ..., or srun"
_NAMES = {
    _BATCHES: "batch-size batchsize batch-sizes mini-batch-size bs train-batch-size",
    _SAMPLING: "fanout fanouts fan-out sampler sampling num-neighbors neighbors num-samples sample-size",
    _DEVICE: "gpu gpus num-gpus device cuda use-cuda no-cuda accelerator",
    _RANKS: "np n nproc nprocs num-procs num-nodes num-parts ranks num-ranks world-size nproc-per-node",
    "attention-dropout": "attn-drop attn-dropout att-dropout",
    "checkpoint-every": "save-every save-steps ckpt-every checkpoint-freq",
    "clip-norm": "grad-clip gradient-clip clip clip-grad-norm max-grad-norm max-norm",
    "epochs": "iterations steps max-steps num-iters",
    "eval-every": "eval-interval eval-steps eval-freq val-every",
    "graph": "data dataset data-path data-dir graph-file",
    "layers": "num-layers n-layers depth",
    "lr": "learning-rate step-size eta",
    "model": "arch architecture gnn conv net network",
    "patience": "early-stop early-stopping",
    "precision": "amp fp16 bf16 half mixed-precision dtype fp64 float64 double",
    "run-dir": "o out output output-dir out-dir log-dir save-dir",
    "weight-decay": "wd l2 decay regularization",
}
# {name in another program, with dashes: an option, or a sentence}
_MEANINGS = {name: meant for meant, names in _NAMES.items() for name in names.split()}


def suggest(given: str, known: Iterable[str]) -> tuple[str | None, str | None]:
    """(the name among `known` that was probably meant or None, a sentence instead of a name or None).

    given: an unknown name, with dashes, underscores and capitals as they came; known: names with dashes or underscores.
    """
    name = given.split("=")[0].strip("-").replace("_", "-").lower()
    removed = REMOVED.get(name.replace("-", "_"))
    if removed is not None:
        return None, f"it is of an earlier version; {removed.remedy}"
    if " " in (meant := _MEANINGS.get(name, "")):
        return None, meant
    # Or an option's name among words, the last of them: num-layers, hidden-dropout.
    known = list(known)
    words = [word for word in reversed(name.split("-")) if word in known]
    return likely(name, known, _MEANINGS) or next(iter(words), None), None
