"""Readers of other libraries' own files: partitions of DGL, GraphBolt and GraphStorm, and objects of DGL
(docs/importing.md).
"""

from typing import TYPE_CHECKING

from hpcgnn.exports import lazy_exports

if TYPE_CHECKING:
    from hpcgnn.extras.readers.dgl_objects import from_dgl as from_dgl

__all__ = ["from_dgl"]
__getattr__, __dir__ = lazy_exports(__name__, {"from_dgl": "hpcgnn.extras.readers.dgl_objects"})
