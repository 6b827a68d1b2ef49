"""The operators: sequential aggregation and rematerialization, with their own gradients."""
