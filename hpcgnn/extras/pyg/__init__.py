"""Layers of PyG over ranks, and weights to and from PyG and DGL, for who comes from there (docs/pyg.md,
docs/coming-from.md).
"""

from typing import TYPE_CHECKING

from hpcgnn.exports import lazy_exports

if TYPE_CHECKING:
    from hpcgnn.extras.pyg.layer import from_pyg_layer as from_pyg_layer

_HOMES = {"from_pyg_layer": "hpcgnn.extras.pyg.layer"}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
