"""The libraries whose layers have equals here."""

from hpcgnn.app.weights import LIBRARIES
from hpcgnn.extras.pyg.weights import DGL, PYG, ForeignLayers

LIBRARIES.register("pyg", ForeignLayers("PyG", PYG))
LIBRARIES.register("dgl", ForeignLayers("DGL", DGL))
