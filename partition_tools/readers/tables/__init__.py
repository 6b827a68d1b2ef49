"""Text tables: edges, and the features, labels, splits, types and ids of nodes beside them."""
