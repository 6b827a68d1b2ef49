"""The names of models, schedules and tasks that an installation offers: from the registries and from a plugin.

torch is imported at the first call, which also adds the options that schedules declare.
"""

from hpcgnn.config import Choices


def registry_choices() -> Choices:
    """Return the names in the registries, the options of models, the traits of schedules, and the rules between
    options.
    """
    from hpcgnn.comm.session import TRANSPORTS
    from hpcgnn.nn.norm import NORM_LAYERS
    from hpcgnn.nn.registry import MODELS
    from hpcgnn.plan.run_plan import check_options
    from hpcgnn.registry import load_extras
    from hpcgnn.schedules.schedule_registry import SCHEDULES
    from hpcgnn.tasks.registry import TASKS, task_traits

    load_extras()
    models = {name: entry.uses for name, entry in MODELS.items()}
    schedules = {name: entry.traits for name, entry in SCHEDULES.items()}
    names = {"models": models, "norms": tuple(NORM_LAYERS), "transports": tuple(TRANSPORTS)}
    names["tasks"] = {name: task_traits(name) for name in ("auto", *TASKS)}
    names["losses"] = tuple(dict.fromkeys(["auto", *(loss for task in TASKS.values() for loss in task.losses)]))
    names["metrics"] = tuple(dict.fromkeys(["auto", *(name for task in TASKS.values() for name in task.metrics)]))
    return {**names, "schedules": schedules, "check": check_options}
