"""The option `--edge-dropout` and its rules."""

from hpcgnn.config import declare
from hpcgnn.extras.edge_dropout.option import EdgeDropout, EdgeDropoutConfig, counted, rule
from hpcgnn.plan import rules
from hpcgnn.schedules.base import CHANGING_EDGES

declare("model", "edge_dropout", EdgeDropoutConfig)
CHANGING_EDGES.register("edge_dropout", EdgeDropout())
rules.RULES.append(rule)
rules.COUNTING_RULES.append(counted)
