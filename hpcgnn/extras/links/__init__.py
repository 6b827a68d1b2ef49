"""Link prediction (`--task links`): embeddings of nodes, learned from edges without labels. See docs/models.md."""
