"""Registers traces."""

from hpcgnn.config import declare
from hpcgnn.extras.traces import tensorboard, trace
from hpcgnn.plan.rules import RULES
from hpcgnn.plugins.registry import JOB_PLUGINS

declare("run", "trace", trace.TraceConfig)
declare("run", "tensorboard", tensorboard.TensorBoardConfig)
JOB_PLUGINS.register("trace", trace.make)
JOB_PLUGINS.register("tensorboard", tensorboard.make)
RULES.append(trace.rule)
