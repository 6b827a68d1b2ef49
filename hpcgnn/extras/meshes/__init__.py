"""Meshes: fields on the nodes of one graph at many times (`--task fields`), and models that read positions. See
docs/meshes.md.
"""
