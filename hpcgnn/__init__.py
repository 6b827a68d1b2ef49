"""Full-batch graph neural networks on MPI ranks, with memory that falls linearly with their number.

Importing the package starts nothing: no MPI, no thread. `python -m hpcgnn` (or the command `hpcgnn`) is the way in.
"""

__version__ = "0.1.0"
