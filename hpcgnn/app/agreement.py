"""Before training, the ranks check that they are about to do the same thing.

Nodes may differ in the version of a configuration file, or in an upgraded package. A graph file may be replaced while
the job starts. Each of these makes a job hang in the middle or, worse, end with a wrong number. Two small
all-reductions of hashes find them; ranks send more only if the hashes differ. One rank of each node reads the files of
the package, which are the same for its others: thousands of ranks would open a million files.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hpcgnn
from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.engine.summary import versions
from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.kernels import library
from hpcgnn.nn.plugin import plugin_hash
from hpcgnn.option_fields import flag
from hpcgnn.word_list import ranges

# The digest of a missing value: below all others, because the check compares the largest and the least digest.
_LEAST = -(1 << 62)
CODE = "hpcgnn's code"
# May differ between ranks: threads on nodes of other sizes; the directory, which rank 0 alone uses.
MAY_DIFFER = ("threads", "run_dir")


def agree(comm: Communicator, facts: Mapping[str, Any]) -> None:
    """Raise ConfigError on all ranks, naming the ranks and their difference, unless all have the same facts.
    Collective.

    Args:
        comm: the communicator.
        facts: {name: value}, compared as JSON. None of CODE: the first rank of the node tells it for this one.
    """
    told = {name: value for name, value in facts.items() if name != CODE or value is not None}
    digest = _digest({name: value for name, value in told.items() if name != CODE})
    ends = [digest, -digest]
    if CODE in facts:
        ends += [_LEAST, _LEAST] if facts[CODE] is None else [_digest(facts[CODE]), -_digest(facts[CODE])]
    extremes = comm.allreduce_(torch.tensor(ends), "control", "max")
    if torch.equal(extremes[0::2], -extremes[1::2]):
        return
    everyone = comm.allgather_object({name: _as_json(value) for name, value in told.items()})
    parts = []
    for name in sorted({name for one in everyone for name in one}):
        ranks: dict[str, list[int]] = {}
        for rank, one in enumerate(everyone):
            if name in one or name != CODE:
                ranks.setdefault(one.get(name, "missing"), []).append(rank)
        if len(ranks) > 1:
            groups = sorted(ranks.items(), key=lambda item: -len(item[1]))
            parts.append(f"{name} is " + ", ".join(f"{value} on rank {ranges(where)}" for value, where in groups))
    raise ConfigError.on_all(
        f"the ranks do not agree: {'; '.join(parts[:6])}{' …' if len(parts) > 6 else ''}. Expected the same command, "
        "files and packages on all ranks and nodes"
    )


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _digest(value: Any) -> int:
    return int.from_bytes(hashlib.sha256(_as_json(value).encode()).digest()[:7], "big")


def facts_of_process(config: Config, comm: Communicator) -> dict[str, Any]:
    """Return the facts that must agree before any file is read: the options, the plugin, the code, the packages."""
    options = {
        flag(name): value
        for section in config.to_dict().values()
        for name, value in section.items()
        if name not in MAY_DIFFER
    }
    first = comm.first_of_node
    library.load(check_sources=first)
    code = {"the plugin": plugin_hash(config.model.plugin), CODE: code_hash() if first else None}
    return options | code | versions()


def facts_of_graph(meta: GraphMeta, map_name: str, cluster_to_rank: np.ndarray) -> dict[str, Any]:
    """Return the facts that must agree before memory is divided. With the options they decide the plan of a run."""
    return {
        "the graph": [meta.uuid, meta.num_nodes, meta.num_edges],
        "the map": [map_name, hashlib.sha256(cluster_to_rank.tobytes()).hexdigest()[:12]],
    }


@functools.cache
def code_hash() -> str:
    """A hash of this package's sources and of its kernel library, as they lie on this node."""
    root = Path(hpcgnn.__file__).parent
    files = sorted(root.rglob("*.py"))
    loaded = library.load().file
    return _hash(*files, *([Path(loaded)] if loaded else []))


def _hash(*paths: Path) -> str:
    state = hashlib.sha256()
    for path in paths:
        state.update(path.read_bytes())
    return state.hexdigest()[:12]
