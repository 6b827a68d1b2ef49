"""Layers and models, which know neither schedules nor MPI."""

from typing import TYPE_CHECKING

from hpcgnn.offering import lazily

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
    from hpcgnn.nn.sage import SAGEMaxConv as SAGEMaxConv
    from hpcgnn.nn.sage import SAGEPoolConv as SAGEPoolConv
    from hpcgnn.nn.transformer import TransformerConv as TransformerConv

# For scripts; modules of this package name each other's files.
_HOMES = {
    "GATConv": "hpcgnn.nn.gat",
    "GATv2Conv": "hpcgnn.nn.gatv2",
    "GCNConv": "hpcgnn.nn.gcn",
    "EdgeGATConv": "hpcgnn.nn.gat",
    "GINConv": "hpcgnn.nn.gin",
    "GINEConv": "hpcgnn.nn.gin",
    "Linear": "hpcgnn.nn.linear",
    "BatchNorm": "hpcgnn.nn.norm",
    "LayerNorm": "hpcgnn.nn.norm",
    "PNAConv": "hpcgnn.nn.pna",
    "RGATConv": "hpcgnn.nn.rgcn",
    "RGCNConv": "hpcgnn.nn.rgcn",
    "SAGEConv": "hpcgnn.nn.sage",
    "SAGEMaxConv": "hpcgnn.nn.sage",
    "SAGEPoolConv": "hpcgnn.nn.sage",
    "SGCConv": "hpcgnn.nn.gcn",
    "TransformerConv": "hpcgnn.nn.transformer",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazily(__name__, _HOMES)
