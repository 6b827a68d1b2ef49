"""The ways to partition. A method has NAME, HELP, two facts, clusters(...) and ranks(...), in a file of its own.

* clusters(ClusterRequest, scratch) -> (order of the nodes, cluster offsets) makes the clusters of a graph.
* ranks(sizes, cluster_graph, num_ranks, seed) -> int32 (K,). sizes: (K,), or (K, m) to balance several weights.
* NEW_FILE: whether nodes are always reordered. Then the result must go to a file of its own.
* ON_DISK: whether edges that do not fit in memory may stay in the file.

A method with options of its own is a dataclass that declares them (`workspace.settings`).
"""

from collections.abc import Mapping
from typing import Any

from hpcgnn.errors import ConfigError
from hpcgnn.likely_names import perhaps
from partition_tools.partitioners import given, kaminpar, metis, random_clusters, random_nodes
from partition_tools.workspace.settings import declared, made

AUTO = "auto"
METHODS: dict[str, Any] = {each.NAME: each for each in (metis, kaminpar, random_clusters, random_nodes, given.Given)}
#: Methods of earlier versions that are gone: {name: the way to go on}.
REMOVED = {"restreaming": "--method kaminpar has fewer halo rows, and leaves edges on disk too"}
KEYS = declared(each for each in METHODS.values() if isinstance(each, type))


def method_of(name: str, settings: Mapping[str, Any]) -> Any:
    """The method of a name, with its own options; None for AUTO. settings: {key: value}. Raises ConfigError."""
    if name in REMOVED:
        raise ConfigError(f"--method {name} is gone: {REMOVED[name]}")
    known = (AUTO, *METHODS)
    if name not in known:
        raise ConfigError(f"unknown method {name!r}; expected one of {', '.join(known)}{perhaps(name, known)}")
    found = METHODS.get(name)
    own = declared([found]) if isinstance(found, type) else {}
    if strange := [word for word in settings if word not in own]:
        raise ConfigError(f"{strange[0]} is no option of --method {name}")
    return made(found, settings) if isinstance(found, type) else found
