"""The options of links."""

import math
from dataclasses import dataclass
from functools import partial
from typing import cast

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.option_fields import option
from hpcgnn.options.task import TaskConfig

LINKS = "links"
_option = partial(option, on_resume="same", needs={"task": (LINKS,)})
#: Values of `--link-split`: the graph file's own held-out edges; and these if the file has any, else the usual shares.
GIVEN, AUTO, USUAL = "given", "auto", "0.9/0.05/0.05"


def drawn_shares(text: str) -> tuple[float, float, float] | None:
    """(training, validation, test), which sum to 1, of `0.9/0.05/0.05`; None for given edges. Raises ConfigError."""
    if text in (AUTO, GIVEN):
        return None
    try:
        train, val, test = (float(part) for part in text.split("/"))
    except ValueError:
        train = val = test = math.nan
    if not (0 < train <= 1 and val >= 0 and test >= 0 and math.isclose(train + val + test, 1, abs_tol=1e-6)):
        raise ConfigError(
            "--link-split: expected three shares that sum to 1, of training (above 0), validation and test, such as "
            f"{USUAL}, or {GIVEN} or {AUTO}, got {text!r}"
        )
    return train, val, test


@dataclass(frozen=True, kw_only=True)
class LinksConfig(TaskConfig):
    """The options of links. Its outputs have `--hidden` columns."""

    scorer: str = _option(
        "dot",
        "links: score of a pair of embeddings",
        details="mlp: two layers of --hidden units (docs/models.md).",
        choices=("dot", "distmult", "mlp"),
    )
    link_split: str = _option(
        AUTO,
        "links: held-out edges of the file, or shares as 0.9/0.05/0.05",
        details="auto: given if the file has held-out edges, else 0.9/0.05/0.05. Messages use training edges alone.",
        check=drawn_shares,
    )
    negatives: int = _option(
        1,
        "links: drawn negative sources of every training edge",
        details="Drawn anew in every epoch.",
        least=1,
        most=1024,
    )
    negative_pool: int = _option(
        4096,
        "links: pool of nodes for negatives in an epoch",
        details="Every rank holds the embeddings of the pool.",
        least=1,
        most=1 << 16,
    )
    link_negatives: int = _option(
        1000,
        "links: nodes among which held-out edges are ranked",
        details="Drawn once by --seed; all nodes of a smaller graph. Unused if the file has negatives.",
        least=1,
        most=1 << 16,
    )


def options_of(config: Config) -> LinksConfig:
    """The options of a configuration."""
    return cast(LinksConfig, config.task)
