"""Registers traces."""

from hpcgnn.config import declare
from hpcgnn.extras.traces import trace
from hpcgnn.plan.rules import RULES
from hpcgnn.plugins.registry import JOB_PLUGINS

declare("run", "trace", trace.TraceConfig)
JOB_PLUGINS.register("trace", trace.make)
RULES.append(trace.rule)
