"""The numeric kernels: aggregation as a gather of rows, packing of rows, counter-based random numbers and dropout.

Each kernel is a table of its arguments and a few lines of torch (`kernel.py`), and C (`native/`, compiled when the
package is installed). Tests compare both. The lines of torch also run if there is no compiler; `describe()` names what
runs. Environment: HPCGNN_KERNELS=auto|native|reference and HPCGNN_VECTOR=baseline|avx2|avx512 (see `library.py`), read
at the first call.

They are plain calls and not registered as torch custom operators: their gradients are written by hand in `ops/`,
nothing traces them, and the dispatcher takes longer than a small gather. docs/kernels.md describes how to add one.
"""

from .activation import bias_gradient, elu, elu_gradient, relu_gradient
from .aggregation import add_rows, check_block, gather, gather_largest, gather_matching, pack
from .attention import attend_backward, attend_finish, attend_forward
from .batch_norm import column_sums, norm_columns, norm_columns_gradient, norm_gradient_sums
from .coding import BLOCK, decode, encode
from .convolution import Aggregate, Gathering, convolve, convolve_backward, convolves
from .cover import MOST_LEFT, MOST_RIGHT, least_cover
from .edge_dropout import Columns, drop_edges
from .kernel import FLOATS, accumulation_dtype
from .library import describe, watched
from .loss import cross_entropy
from .masking import dropout, dropout_entries, kept_scale
from .messages import RowMessages, message_backward, message_forward, reduces_messages
from .narrowing import narrow, widen
from .products import multiply
from .projection import Elu, one_pass, project, project_backward
from .randomness import random_words, stream_key
from .scores import RowScores, score_backward, score_forward, scores_rows

__all__ = [
    "BLOCK",
    "FLOATS",
    "MOST_LEFT",
    "MOST_RIGHT",
    "Aggregate",
    "Columns",
    "Elu",
    "Gathering",
    "RowMessages",
    "RowScores",
    "accumulation_dtype",
    "add_rows",
    "attend_backward",
    "attend_finish",
    "attend_forward",
    "bias_gradient",
    "check_block",
    "column_sums",
    "convolve",
    "convolve_backward",
    "convolves",
    "cross_entropy",
    "decode",
    "describe",
    "drop_edges",
    "dropout",
    "dropout_entries",
    "elu",
    "elu_gradient",
    "encode",
    "gather",
    "gather_largest",
    "gather_matching",
    "kept_scale",
    "least_cover",
    "message_backward",
    "message_forward",
    "multiply",
    "narrow",
    "norm_columns",
    "norm_columns_gradient",
    "norm_gradient_sums",
    "one_pass",
    "pack",
    "project",
    "project_backward",
    "random_words",
    "reduces_messages",
    "relu_gradient",
    "score_backward",
    "score_forward",
    "scores_rows",
    "stream_key",
    "watched",
    "widen",
]
