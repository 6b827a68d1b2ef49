"""Registers the recipes."""

from hpcgnn.app.corrections import CORRECTIONS
from hpcgnn.cli.commands import COMMANDS
from hpcgnn.config import declare
from hpcgnn.engine.checkpoint import CHECKS
from hpcgnn.extras.recipes import commands, correct_and_smooth, label_reuse, learned_features, sign
from hpcgnn.nn.registry import MODELS
from hpcgnn.options.inputs import LEARNED, MADE_COLUMNS
from hpcgnn.plan.rules import RULES
from hpcgnn.plugins.registry import JOB_PLUGINS, TRAINER_PLUGINS

MODELS.register("sign", sign.MODEL)
LEARNED.append("learned")
CHECKS.append(learned_features.check_rows)
TRAINER_PLUGINS.register("learned_features", learned_features.make)
JOB_PLUGINS.register("learned_features", learned_features.check_transport)
declare("task", "label_reuse", label_reuse.LabelReuseConfig)
MADE_COLUMNS.register("labels", label_reuse.COLUMNS)
TRAINER_PLUGINS.register("label_reuse", label_reuse.make)
RULES += [sign.rule, label_reuse.rule]
CORRECTIONS.register(correct_and_smooth.CorrectAndSmooth.name, correct_and_smooth.ENTRY)
COMMANDS.register("label-propagation", commands.add_label_propagation)
COMMANDS.register("propagate", commands.add_propagate)
