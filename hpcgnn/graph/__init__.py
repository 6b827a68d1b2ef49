"""A rank's share of the graph: its edges as blocks, its nodes, and the shares of layers that compute fewer rows."""
