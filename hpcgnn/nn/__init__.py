"""Layers and models, which know neither schedules nor MPI. The layers' names here are for scripts."""

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
