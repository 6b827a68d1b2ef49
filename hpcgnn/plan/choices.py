"""The names of models, schedules and tasks that an installation offers: from the registries and from a plugin.

torch is imported at the first call, which also adds the options that schedules declare.
"""

from hpcgnn.config import Choices


def registry_choices() -> Choices:
    """Return the names in the registries, the options of models, the traits of schedules, and the rules between
    options.
    """
    from hpcgnn.nn.norm import NORM_LAYERS
    from hpcgnn.nn.registry import MODELS
    from hpcgnn.plan.rules import check_options
    from hpcgnn.schedules.schedule_registry import BUILT_IN, SCHEDULES

    models = {name: entry.uses for name, entry in MODELS.items()}
    schedules = {name: entry.traits for name, entry in SCHEDULES.items()}
    names = {"models": models, "norms": tuple(NORM_LAYERS), "schedules": schedules}
    return {**names, "own_schedules": set(SCHEDULES) - set(BUILT_IN), "check": check_options}


def load_choices(plugin: str, unasked: str, recorded: str = "") -> Choices:
    """Return the choices after running a plugin file, which may register models of its own. Arguments as for
    `load_plugin`.
    """
    from hpcgnn.nn.plugin import load_plugin

    load_plugin(plugin, unasked, recorded)
    return registry_choices()
