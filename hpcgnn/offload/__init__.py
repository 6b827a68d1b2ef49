"""Training within a memory limit: activations and features on the local disk."""
