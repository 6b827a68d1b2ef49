"""Registers the model `meshgraphnet`, its options and its rules."""

from hpcgnn.config import declare
from hpcgnn.extras.meshes import meshgraphnet
from hpcgnn.nn.registry import MODELS
from hpcgnn.plan.rules import PLAN_RULES, RULES

declare("model", "meshgraphnet", meshgraphnet.MeshGraphNetConfig)
MODELS.register("meshgraphnet", meshgraphnet.MODEL)
RULES.append(meshgraphnet.rule)
PLAN_RULES.append(meshgraphnet.needs_positions)
