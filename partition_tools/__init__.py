"""From raw data to a partitioned graph file: import or generate a graph, cluster it, map the clusters to ranks, check
it.

Everything here runs in one process, without MPI and without torch, usually once per graph on a login node, so that the
training job only reads. Files are written through `hpcgnn.graphfile.storage` alone. The README of this folder
documents the graph file dataset by dataset. `python -m partition_tools --help` lists the sub-commands; each is one
function that Python code can call as well: `import_graph`, `generate_graph`, `partition_graph`, `inspect_graph`,
`verify_graph`, in the modules of those names.
"""
