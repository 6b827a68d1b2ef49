"""Registers the recipes."""

from hpcgnn.app.corrections import CORRECTIONS
from hpcgnn.cli.commands import COMMANDS
from hpcgnn.config import declare
from hpcgnn.extras.recipes import commands, correct_and_smooth, label_reuse, sign
from hpcgnn.nn.registry import MODELS
from hpcgnn.options.inputs import MADE_COLUMNS
from hpcgnn.plan.rules import RULES
from hpcgnn.plugins.registry import TRAINER_PLUGINS

MODELS.register("sign", sign.MODEL)
declare("task", "label_reuse", label_reuse.LabelReuseConfig)
MADE_COLUMNS.register("labels", label_reuse.COLUMNS)
TRAINER_PLUGINS.register("label_reuse", label_reuse.make)
RULES += [sign.rule, label_reuse.rule]
CORRECTIONS.register(correct_and_smooth.CorrectAndSmooth.name, correct_and_smooth.ENTRY)
COMMANDS.register("label-propagation", commands.add_label_propagation)
COMMANDS.register("propagate", commands.add_propagate)
