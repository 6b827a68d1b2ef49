"""Meshes: fields of the nodes at many times, learned on one graph. See docs/formats.md for their snapshots."""
