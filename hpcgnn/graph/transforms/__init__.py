"""Other views of a rank's share: pruned, sampled, inductive, as sums of rows, inside a node."""
