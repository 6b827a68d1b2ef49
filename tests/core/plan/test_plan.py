"""The plan of a run: every pair of a model, a schedule and a task has a plan, or one line of refusal."""

import ast
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from graphs import META

import hpcgnn
from hpcgnn.comm.session import TRANSPORTS
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.nn.registry import MODELS
from hpcgnn.options import inputs
from hpcgnn.plan import rules
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.run_plan import RunPlan, check_options, plan
from hpcgnn.schedules.schedule_registry import SCHEDULES
from hpcgnn.tasks.registry import TASKS
from hpcgnn.traits import TransportTraits

OF_SCHEDULE = {"tma": {"average_steps": 2}}
# What breaks each rule of the core, in the order of the rules.
BREAKS = (
    {"schedule": "sar", "layer_epochs": "2"},
    {"schedule": "lazy", "model": "appnp"},
    {"schedule": "lazy", "jumping": "cat"},
    {"schedule": "lazy", "halo_dtype": "bf16"},
    {"inductive": True, "features": "own:4"},
    {"inductive": True, "features": "edges"},
    {"inductive": True, "schedule": "bns"},
    {"schedule": "lazy", "features": "own:4"},
    {"features": "own:4", "keep_input": "always"},
    {"precision": "mixed", "model": "gat"},
    {"precision": "mixed", "jumping": "cat"},
    {"precision": "mixed", "schedule": "bns"},
    {"schedule": "tma", "average_steps": 2, "comm": "collective"},
)


@pytest.fixture(autouse=True)
def _collective(monkeypatch):
    """A transport of collective calls alone, and columns that a plugin learns."""
    monkeypatch.setattr(inputs, "LEARNED", ["own"])
    monkeypatch.setitem(TRANSPORTS, "collective", replace(TRANSPORTS["mpi"], traits=TransportTraits(pairwise=False)))


def configuration(**options):
    """A Config that no rule has been asked about."""
    return make_config({"graph": "g.h5", **options}, {**registry_choices(), "check": lambda config: None})


def refused_at(config):
    """The line of plan/rules.py with the first refusal of a configuration."""
    for rule in rules.RULES:
        for _ in (refusals := rule(RunPlan(config))):
            return refusals.gi_frame.f_lineno


def test_every_rule_is_reached():
    names, tree = {rule.__name__ for rule in rules.RULES}, ast.parse(Path(rules.__file__).read_text(encoding="utf-8"))
    bodies = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    refusals = sorted(node.lineno for body in bodies for node in ast.walk(body) if isinstance(node, ast.Yield))
    reached = [refused_at(configuration(**options)) for options in BREAKS]
    assert [max(line for line in refusals if line <= at) for at in reached] == refusals


@pytest.mark.parametrize("options", BREAKS, ids=str)
def test_a_refusal_is_one_line_with_what_was_expected(options):
    with pytest.raises(ConfigError) as caught:
        check_options(configuration(**options))
    text = str(caught.value)
    assert text.count("--") >= 1 and "\n" not in text
    assert any(word in text for word in ("expected", "leave", "such as", "use "))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("model", MODELS)
def test_pairs(model, schedule):
    """Of every task, halo and precision with the pair."""
    tasks = ("auto", *(name for name, task in TASKS.items() if not task.traits.labels))
    for task, halo, precision in itertools.product(tasks, ("auto", "least"), ("fp32", "mixed")):
        options = {"model": model, "schedule": schedule, "task": task, "halo": halo, "precision": precision}
        config = configuration(**options, **OF_SCHEDULE.get(schedule, {}))
        try:
            check_options(config)
            decided = plan(config, META)
        except (ConfigError, GraphError) as error:
            assert str(error) and "\n" not in str(error)
            continue
        assert decided.config.task.task in TASKS and decided.config.data.self_loops in ("add", "keep")
        assert decided.halo == "rows" or MODELS[model].traits(decided.spec).fixed_sums
        assert decided.halo != "rows" or halo == "auto"
        assert not decided.prunes or SCHEDULES[schedule].traits.exact_epochs
        assert decided == plan(config, META), "a pure function"


def test_no_other_file_compares_names():
    """Names of models, schedules and extra tasks stand in comparisons of their own files alone."""
    tasks = {name for name, task in TASKS.items() if not task.traits.labels}
    names, root, found = {*MODELS, *SCHEDULES, *tasks}, Path(hpcgnn.__file__).parent, []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            constants = [each.value for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant)]
            if names & {each for each in constants if isinstance(each, str)}:
                found.append(f"{path.relative_to(root)}:{node.lineno}")
    # What other libraries compute otherwise is known by their names.
    assert not [each for each in found if not each.startswith("extras/pyg/weights.py")], "\n".join(found)


@pytest.mark.parametrize("features", ["", "none+degree", "file+file", "degree:3", "file:2", "own", "own:0"])
def test_features_that_there_are_not(features):
    with pytest.raises(ConfigError, match="expected file, none, degree, edges, own:D with D from 1"):
        check_options(configuration(features=features))
