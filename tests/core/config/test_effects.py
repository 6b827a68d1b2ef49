"""Options that the other choices leave without effect give one line or a refusal, whether typed or in a file. A file
that holds every option, as the config.toml of a run does, gives no line.
"""

from dataclasses import replace

import graphs
import pytest

from hpcgnn.__main__ import build_parser, main, registry_choices
from hpcgnn.cli.arguments import given_options
from hpcgnn.config import make_config, read_toml
from hpcgnn.errors import ConfigError
from hpcgnn.nn.registry import MODELS, register
from hpcgnn.schedules.base import ScheduleEntry
from hpcgnn.schedules.schedule_registry import SCHEDULES
from hpcgnn.schedules.schedule_registry import register as register_schedule
from hpcgnn.schedules.tma import TmaConfig
from hpcgnn.traits import ScheduleTraits
from hpcgnn.unused_options import without_effect

CHOICES = registry_choices()


def told(options):
    """The line about typed options without effect; None: there is no such line."""
    typed = given_options(build_parser(CHOICES).parse_args(["train", "--graph", "g.h5", *options.split()]))
    return without_effect(make_config(typed, CHOICES), typed, {}, CHOICES)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """{name: graph file}, plain and with weights."""
    folder, found = tmp_path_factory.mktemp("effects"), {}
    for name, weighted in (("plain", False), ("weighted", True)):
        found[name] = folder / f"{name}.h5"
        graphs.planted(found[name], nodes=200, weighted=weighted)
    return found


def said(capsys, graph, *options):
    """(exit code, lines on standard error) of a dry run."""
    code = main(["train", "--graph", str(graph), "--hidden", "8", "--dry-run", "1", *map(str, options)])
    return code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    "options, words",
    [
        ("--heads 8", "--heads (for --model gat, gatv2, transformer, rgat, got gcn)"),
        ("--model sgc --hidden 8 --norm batch --residual", "--hidden, --norm, --residual (not for --model sgc)"),
        ("--boundary-rate 0.1", "--boundary-rate (for --schedule bns, got sar)"),
        ("--schedule tma --average-steps 2 --halo-dtype bf16", "--halo-dtype (needs --schedule sar or bns or"),
        ("--schedule lazy --layer-epochs 3 --epochs 9", "--epochs (needs no --layer-epochs, got 3)"),
    ],
)
def test_what_has_no_effect_is_said_in_one_line(options, words):
    line = told(options)
    assert line.startswith("without effect: ") and words in line and "\n" not in line


@pytest.mark.parametrize(
    "options, words",
    [
        (
            "--patience 5 --eval-every 0",
            "--patience 5 has no effect as it stands (needs --eval-every of at least 1, got 0)",
        ),
        ("--boundary-rate 0.2", "belongs to --schedule bns"),
        ("--resume", "--resume: expected --run-dir"),
    ],
)
def test_what_cannot_have_been_meant_so_is_refused(capsys, paths, options, words):
    code, lines = said(capsys, paths["plain"], *options.split())
    assert code == 2 and len(lines) == 1 and words in lines[0], lines


@pytest.mark.parametrize(
    "options",
    [
        "--model gat --heads 2 --out-heads 2 --attention-dropout 0.1",
        "--lr-schedule cosine --patience 4 --norm batch --residual --keep-input never",
        "--schedule lazy --lr 0.2 --layer-epochs 2 --model gat",
        "--schedule tma --average-steps 2 --correct-every 2 --halo-dtype bf16",
    ],
)
def test_nothing_is_said_of_what_has_an_effect(options):
    assert told(options) is None


@pytest.mark.parametrize("model", MODELS)
def test_the_config_of_a_run_can_be_given_back_without_a_word(tmp_path, model):
    """It holds all options; most of them are not for this model and schedule."""
    values = {"graph": "g.h5", "model": model, **({} if model == "sgc" else {"hidden": 8})}
    (tmp_path / "c.toml").write_text(make_config(values, CHOICES).to_toml())
    filed = read_toml(tmp_path / "c.toml")
    assert without_effect(make_config(filed, CHOICES), {}, filed, CHOICES) is None


def test_what_a_file_changes_in_vain_is_said(capsys, tmp_path, paths):
    values = "[model]\nheads = 8\nout_heads = 1\n[optim]\nepochs = 9\n"
    (tmp_path / "c.toml").write_text(values + '[schedule]\nschedule = "lazy"\nlayer_epochs = "3"\n')
    code, lines = said(capsys, paths["plain"], "--config", tmp_path / "c.toml")
    assert code == 0 and len(lines) == 1
    assert lines[0].split(": ", 3)[3] == (
        "--heads (for --model gat, gatv2, transformer, rgat, got gcn); --epochs (needs no --layer-epochs, got 3)"
    )


def test_of_the_options_of_a_plugin_nothing_is_known(monkeypatch):
    monkeypatch.setitem(MODELS, "own", None)  # so that it goes in the end
    del MODELS["own"]
    register("own")(type("Own", (), {}))
    choices = registry_choices()
    typed = {"graph": "g.h5", "model": "own", "heads": 8, "plugin": "own.py", "boundary_rate": 0.1}
    line = without_effect(make_config(typed, choices), typed, {}, choices)
    assert line == "without effect: --boundary-rate (for --schedule bns, got sar)"


def test_a_schedule_of_ones_own_has_the_options_of_its_traits(monkeypatch):
    """The file of a schedule alone names the options that it reads: no option has a list of schedules' names to be
    added to.
    """
    monkeypatch.setitem(SCHEDULES, "local", replace(SCHEDULES["bns"], traits=ScheduleTraits()))
    choices = registry_choices()
    typed = {"graph": "g.h5", "schedule": "local", "halo_dtype": "bf16"}
    line = without_effect(make_config(typed, choices), typed, {}, choices)
    assert line.startswith("without effect: --halo-dtype (needs --schedule sar or bns or ")
    assert line.endswith(" or --correct-every of at least 1)")
    with pytest.raises(ConfigError, match="--prune belongs to --schedule sar, got --schedule local"):
        make_config({**typed, "prune": "none"}, choices)


@pytest.mark.parametrize(
    "options, words",
    [
        ("--model gat", "gcn, sage, gin or sgc reads them"),
        ("--model gatv2", "ignored by --model gatv2"),
        ("--model gcn", ""),
    ],
)
def test_weights_that_the_model_ignores_are_pointed_out(capsys, paths, options, words):
    code, lines = said(capsys, paths["weighted"], *options.split())
    assert code == 0 and len(lines) == bool(words) and all(words in line for line in lines), lines
    assert said(capsys, paths["plain"], *options.split()) == (0, [])


def test_a_name_that_is_taken_is_refused():
    registry_choices()
    entry = SCHEDULES["tma"]
    with pytest.raises(ValueError, match="the schedule 'tma' exists"):
        register_schedule("tma", entry)
    with pytest.raises(ValueError, match=r"the option 'average_steps' exists in \[schedule\]"):
        register_schedule("other", ScheduleEntry(entry.build, entry.traits, options=TmaConfig))
    assert "other" not in SCHEDULES
