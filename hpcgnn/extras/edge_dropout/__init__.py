"""Edge dropout (DropEdge): the option `--edge-dropout`, which leaves out other edges in every epoch of training.

It is a regulariser for models that overfit (docs/models.md, "Edge dropout").
"""
