"""The option that a user probably meant by a name that does not exist: first by meaning, then by spelling, else none.

People bring the names of other libraries along. A guess by letters alone led from --batch-size to --eval-every.
"""

import difflib
import re
from collections.abc import Container, Iterable

from hpcgnn.options.removed import REMOVED

# How alike two spellings must be; "hiden" and "hidden" are 0.91.
_ALIKE = 0.75
_BATCHES = (
    "there are no batches: every step sees the whole graph, and --halo-buffer bounds the memory for rows of other ranks"
)
_SAMPLING = (
    "nothing is sampled: every step sees all neighbours (--schedule bns takes a random part of those on other ranks)"
)
_DEVICE = "it runs on CPUs; the launcher starts the ranks, and --threads says how many threads each has"
_RANKS = "the launcher starts the ranks: mpiexec -n N hpcgnn train ..., or srun"
_PRECISION = "precision"
#: {pattern of a whole name, with dashes: an option, or a sentence}. Packages of `hpcgnn.extras` add theirs.
MEANINGS = {
    r"(base-|initial-)?learning-rate|lrate|step-size|eta": "lr",
    r"(mini-?)?batch-?(size|es)|bs|(train|eval|test)-batch-size": _BATCHES,
    r"(num|n|nr|number-of|gnn|conv)-layers?|n?layers-num|depth|(num|n)-hops|hops|k-hops?": "layers",
    r"(num-|n-|nr-)?hidden(-(channels?|dims?|size|units?|features?|feats?|width))?|(h|hid)-?dim|width": "hidden",
    r"(num|n|nr|max|number-of|train)-epochs?|nepochs|iterations|(num-|max-)?(iters?|steps)": "epochs",
    r"gpus?|device|cuda(-device)?|num-gpus|accelerator|use-cuda|no-cuda|mps": _DEVICE,
    r"wd|l2|l2-(reg|norm|penalty)|decay|regularization": "weight-decay",
    r"fan-?outs?|sampl(e|er|es|ing)(-[a-z]+)*|(num|n)-(neighbou?rs|samples)|neighbou?rs|num-neighbou?r": _SAMPLING,
    r"(num|n|nr)-(attention-)?heads|attention-heads": "heads",
    r"(num|n)-out(put)?-heads": "out-heads",
    r"drop|drop-?out-?(rate|prob|p)|p-?drop(out)?|(feat|feature|in|hidden)-?drop(out)?": "dropout",
    r"input-drop": "input-dropout",
    r"(attn|att|attention)-?drop(out)?": "attention-dropout",
    r"(num|n)-bases": "bases",
    r"(batch|layer|graph)-?norm(alization)?|normali[sz]ation|bn": "norm",
    r"skip(-connections?)?|residuals|res(net)?|jk|jumping-knowledge": "residual",
    r"data(set|-path|-dir|-root|-file)?|graph-(file|path|name)": "graph",
    r"out(put)?(-(dir|path|folder|directory))?|o|(log|save|result|results|exp|experiment)-?dir": "run-dir",
    r"np|n|nprocs?|(num|n)-?(procs?|processes|ranks|nodes|parts|partitions)|ranks|world-size|nproc-per-node": _RANKS,
    r"(num-)?workers?|(num|n)-threads?|nthreads|cpus|cores|omp-num-threads": "threads",
    r"seeds|random-?(seed|state)|rng(-seed)?": "seed",
    r"early-?stop(ping)?(-(patience|rounds|epochs))?": "patience",
    r"amp|fp16|bf16|half|bfloat16|float16|mixed(-precision)?|dtype|fp64|float64|double": _PRECISION,
    r"optim|opt(imi[sz]er-(name|type))?": "optimizer",
    r"(lr-)?sched(uler)?|lr-decay|scheduler-type": "lr-schedule",
    r"(clip|max)-?grad(ient)?(-norm)?|grad(ient)?-clip(ping)?|max-norm|clip": "clip-norm",
    r"(eval|val|test|validation|evaluate)-?(interval|steps|freq(uency)?|every|epochs)": "eval-every",
    r"(save|ckpt|checkpoint)-?(interval|steps|freq(uency)?|every|epochs)?": "checkpoint-every",
    r"arch(itecture)?|gnn(-type)?|conv(-type)?|(model-)?(type|name)|layer-type|net(work)?": "model",
    r"restart|continue|restore|resume-from|from-checkpoint|ckpt|load": "resume",
    r"(add-)?self-?loops?|no-self-loops": "self-loops",
    r"(part|partition|map)-?(name|method|file|config)": "partition",
    r"buffer(-size)?|halo|cache(-size)?": "halo-buffer",
    r"quanti[sz](e|ation)|compress(ion)?|bits": "halo-dtype",
    r"(sampling|boundary|bns)-?(rate|p)": "boundary-rate",
    r"conf(ig-file)?|cfg|yaml|settings": "config",
    r"timeout": "watchdog",
    r"profile|mem(ory)?(-profile)?|profile-mem": "profile-memory",
    r"score|eval-metric": "metric",
    r"weights-(file|path)": "weights",
    r"pred(ict|iction)?s?(-(file|path|out))?|save-predictions": "predictions",
    r"overwrite": "force",
}


def suggest(given: str, known: Iterable[str]) -> tuple[str | None, str | None]:
    """(the name among `known` that was probably meant or None, a sentence instead of a name or None).

    given: an unknown name, with dashes, underscores and capitals as they came; known: names with dashes or underscores.
    """
    spelled = {name.replace("_", "-"): name for name in known}
    name = given.split("=")[0].strip("-").replace("_", "-").lower()
    removed = REMOVED.get(name.replace("-", "_"))
    if removed is not None:
        return None, f"it is of an earlier version; {removed.remedy}"
    if name in spelled:
        return spelled[name], None
    for pattern, meant in MEANINGS.items():
        if re.fullmatch(pattern, name):
            if " " in meant:
                return None, meant
            if meant in spelled:
                return spelled[meant], None
    close = difflib.get_close_matches(name, spelled, 1, _ALIKE)
    return (spelled[close[0]], None) if close else (None, None)


def elsewhere(given: str, options: Container[str]) -> bool:
    """Whether an option that a command does not have is one of training, which the command takes from the run."""
    return given.split("=")[0].strip("-").replace("-", "_").lower() in options
