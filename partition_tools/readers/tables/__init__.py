"""Text tables of edges, and of features, labels, splits, types and ids of nodes."""
