"""The numeric kernels: aggregation as a gather of rows, packing of rows, counter-based random numbers and dropout.

Each kernel is a table of its arguments and a few lines of torch (`kernel.py`), and C (`native/`, compiled when the
package is installed). Tests compare both. The lines of torch also run if there is no compiler; `describe()` names what
runs. Environment: HPCGNN_KERNELS=auto|native|reference and HPCGNN_VECTOR=baseline|avx2|avx512 (see `library.py`), read
at the first call.

They are plain calls and not registered as torch custom operators. Their gradients are written by hand in `ops/`,
nothing traces them, and the dispatcher takes longer than a small gather. docs/kernels.md describes how to add one.
"""

from .aggregation import add_rows as add_rows
from .aggregation import check_block as check_block
from .aggregation import edge_rows as edge_rows
from .aggregation import gather as gather
from .aggregation import gather_largest as gather_largest
from .aggregation import largest_gradient as largest_gradient
from .aggregation import pack as pack
from .attention import attend_backward as attend_backward
from .attention import attend_begin as attend_begin
from .attention import attend_finish as attend_finish
from .attention import attend_forward as attend_forward
from .coding import BLOCK as BLOCK
from .coding import decode as decode
from .coding import encode as encode
from .coding import narrow as narrow
from .coding import widen as widen
from .convolution import Aggregate as Aggregate
from .convolution import Gathering as Gathering
from .convolution import convolve as convolve
from .convolution import convolve_backward as convolve_backward
from .convolution import convolves as convolves
from .kernel import FLOATS as FLOATS
from .kernel import accumulation_dtype as accumulation_dtype
from .library import describe as describe
from .library import watched as watched
from .matching import match as match
from .projection import Elu as Elu
from .projection import Mask as Mask
from .projection import multiply as multiply
from .projection import one_pass as one_pass
from .projection import project as project
from .projection import project_backward as project_backward
from .projection import project_beside as project_beside
from .randomness import dropout as dropout
from .randomness import dropout_entries as dropout_entries
from .randomness import kept_scale as kept_scale
from .randomness import random_words as random_words
from .randomness import stream_key as stream_key
from .row_rules import RowScores as RowScores
from .row_rules import relate as relate
from .row_rules import rules_rows as rules_rows
from .row_rules import score_backward as score_backward
from .row_rules import score_forward as score_forward
from .rowwise import bias_gradient as bias_gradient
from .rowwise import column_moments as column_moments
from .rowwise import cross_entropy as cross_entropy
from .rowwise import elu as elu
from .rowwise import elu_gradient as elu_gradient
from .rowwise import norm_columns as norm_columns
from .rowwise import norm_columns_gradient as norm_columns_gradient
from .rowwise import norm_gradient_sums as norm_gradient_sums
from .rowwise import relu_gradient as relu_gradient
