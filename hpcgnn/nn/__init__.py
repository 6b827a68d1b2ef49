"""Layers and models, which know neither schedules nor MPI."""

from typing import TYPE_CHECKING

from hpcgnn.exports import lazy_exports

if TYPE_CHECKING:
    from hpcgnn.nn.gat import EdgeGATConv as EdgeGATConv
    from hpcgnn.nn.gat import GATConv as GATConv
    from hpcgnn.nn.gatv2 import GATv2Conv as GATv2Conv
    from hpcgnn.nn.gcn import GCNConv as GCNConv
    from hpcgnn.nn.gcn import SGCConv as SGCConv
    from hpcgnn.nn.gin import GINConv as GINConv
    from hpcgnn.nn.gin import GINEConv as GINEConv
    from hpcgnn.nn.linear import Linear as Linear
    from hpcgnn.nn.norm import BatchNorm as BatchNorm
    from hpcgnn.nn.norm import LayerNorm as LayerNorm
    from hpcgnn.nn.pna import PNAConv as PNAConv
    from hpcgnn.nn.rgcn import RGATConv as RGATConv
    from hpcgnn.nn.rgcn import RGCNConv as RGCNConv
    from hpcgnn.nn.sage import SAGEConv as SAGEConv
    from hpcgnn.nn.transformer import TransformerConv as TransformerConv

# For scripts; modules of this package name each other's files.
_NAMES = {
    "gat": ("EdgeGATConv", "GATConv"),
    "gatv2": ("GATv2Conv",),
    "gcn": ("GCNConv", "SGCConv"),
    "gin": ("GINConv", "GINEConv"),
    "linear": ("Linear",),
    "norm": ("BatchNorm", "LayerNorm"),
    "pna": ("PNAConv",),
    "rgcn": ("RGATConv", "RGCNConv"),
    "sage": ("SAGEConv",),
    "transformer": ("TransformerConv",),
}
_HOMES = {name: f"hpcgnn.nn.{file}" for file, names in _NAMES.items() for name in names}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
