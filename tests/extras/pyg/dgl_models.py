"""Facts of dgl-models.npz: small models that DGL 2.1.0 itself trained, their graph, weights and outputs.

Arrays: `edge_index`, `x`, `y`; `NAME/out` has a model's outputs, and `NAME/weights/…` its state dict. The program that
made them is in the repository's history, in this file.
"""

from pathlib import Path

ARCHIVE = Path(__file__).with_name("dgl-models.npz")
NODES, HIDDEN = 30, 4
#: Options of each model here.
MODELS = {
    "gcn": ("--hidden", HIDDEN),
    "sage": ("--hidden", HIDDEN),
    "gin": ("--hidden", HIDDEN),
    "gat": ("--hidden", HIDDEN, "--heads", 2),
    "sgc": (),
}
