"""The ways to partition. A method is a module with NAME, HELP, NEW_FILE, NESTED, clusters(...) and ranks(...).

* clusters(ClusterRequest) -> (order of the nodes, cluster offsets) makes the clusters of a graph without any.
* ranks(sizes, cluster_graph, num_ranks, seed) -> int32 (K,). sizes: (K,), or (K, m) to balance several weights.
* NEW_FILE: whether nodes are always reordered. Then the result must go to a file of its own.
* NESTED: whether `--per-node` may map its clusters to nodes and ranks (`hpcgnn.placement.nested`).
"""

from partition_tools.partitioners import kaminpar, metis, random_clusters, random_nodes

METHODS = {module.NAME: module for module in (metis, kaminpar, random_clusters, random_nodes)}
#: Methods of earlier versions that are gone: {name: the way to go on}.
REMOVED = {"restreaming": "--method kaminpar has fewer halo rows, and leaves edges on disk too"}
