"""The flags that `hpcgnn train --help` lists, --set, presets, and options of earlier versions."""

import argparse
import json
from dataclasses import fields

import pytest

from hpcgnn import config
from hpcgnn.__main__ import build_parser
from hpcgnn.cli.arguments import given_options, read_options
from hpcgnn.config import SECTION_OF, make_config, read_toml
from hpcgnn.errors import ConfigError
from hpcgnn.options import SECTIONS
from hpcgnn.options.presets import PRESETS
from hpcgnn.options.removed import REMOVED
from hpcgnn.plan.choices import registry_choices

CHOICES = registry_choices()
DECLARED = {declared.name: declared for kind in SECTIONS.values() for declared in fields(kind)}
#: A new option is a key. A new flag needs a reason.
FLAGS = """--dry-run --config --trust-run --preset --set --graph --task --model --plugin --layers --hidden --dropout
    --norm --optimizer --lr --weight-decay --epochs --schedule --halo-buffer --halo-dtype --run-dir --resume --seed
    --threads --precision --comm""".split()
#: Of extras.
MORE = {"--memory"}


def parsed(*words):
    return build_parser(CHOICES).parse_args(["train", *words])


def train_parser():
    commands = next(a for a in build_parser(CHOICES)._actions if isinstance(a, argparse._SubParsersAction))
    return commands.choices["train"]


def test_the_flags():
    shown = [a for a in train_parser()._actions if a.help != argparse.SUPPRESS and a.dest != "help"]
    assert [flag for action in shown if (flag := action.option_strings[0]) not in MORE] == FLAGS


@pytest.mark.parametrize("name", DECLARED)
def test_help_is_short(name):
    assert len(DECLARED[name].metadata["help"].split()) <= 12


def test_all_help_of_flags_is_on_a_page():
    words = sum(len(d.metadata["help"].split()) for d in DECLARED.values() if d.metadata["flag"])
    assert words <= 400 and len(train_parser().format_help().splitlines()) <= 110


@pytest.mark.parametrize(
    "word, key, value",
    [
        ("schedule.halo=rows", "halo", "rows"),
        ("halo=rows", "halo", "rows"),
        ("model.out-heads=2", "out_heads", 2),
        ("optim.clip_norm=0.5", "clip_norm", 0.5),
        ("run.profile_memory=true", "profile_memory", True),
        ("run.profile_memory=False", "profile_memory", False),
        ("data.graph=a=b.h5", "graph", "a=b.h5"),
    ],
)
def test_set(word, key, value):
    assert given_options(parsed("--set", word)) == {key: value}
    assert type(given_options(parsed("--set", word))[key]) is type(value)


def test_set_again_and_a_flag():
    words = ["--set", "halo=rows", "--set", "run.seed=3", "--seed", "3", "--set", "optim.lr=0.1"]
    assert given_options(parsed(*words)) == {"seed": 3, "halo": "rows", "lr": 0.1}


@pytest.mark.parametrize(
    "words, told",
    [
        (["--set", "halo"], "expected SECTION.KEY=VALUE"),
        (["--set", "run.halo=rows"], "halo belongs to another section; write schedule.halo"),
        (["--set", "schedule.hallo=rows"], "there is no key 'hallo'; expected schedule.halo perhaps"),
        (["--set", "qqqq=1"], "docs/options.md lists all keys"),
        (["--set", "run.profile_memory=1"], "expected true or false, got '1'"),
        (["--set", "model.layers=two"], "expected a whole number, got 'two'"),
        (["--set", "model.layers=2", "--layers", "3"], "layers is given twice, also as 3"),
        (["--set", "schedule.drop_ranks=1"], "it is of an earlier version; start the job on fewer ranks"),
    ],
)
def test_what_set_refuses(words, told):
    with pytest.raises(ConfigError) as caught:
        given_options(parsed(*words))
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    """Each makes a configuration with any model that is not bound to a schedule, and options override it."""
    options, _, _, lines = read_options(parsed("--preset", name))
    assert len(lines) == 1 and lines[0].startswith(f"preset {name}: ")
    assert read_options(parsed("--preset", name, "--lr", "1"))[0] == {**options, "lr": 1.0}
    config = make_config({"graph": "g.h5", "model": "sage", **options}, CHOICES).to_dict()
    for key, value in options.items():
        assert config[SECTION_OF[key]][key] == value and f"{SECTION_OF[key]}.{key}={value}" in lines[0]
    assert make_config({"graph": "g.h5", **options, "schedule": "sar"} | neutral(options), CHOICES)


def neutral(options):
    """Options of a schedule with their defaults."""
    return {key: DECLARED[key].default for key in options if DECLARED[key].metadata["schedules"]}


@pytest.mark.parametrize("key", REMOVED)
def test_options_of_earlier_versions(tmp_path, key):
    """The usual value of a removed option is read, as in every config.toml; another one is refused in a line."""
    section = "run" if key in ("torch_backend", "spare_core") else "schedule"
    usual = REMOVED[key].usual
    file = tmp_path / "config.toml"
    file.write_text(f"[{section}]\n{key} = {json.dumps(usual)}\n[model]\nlayers = 2\n")
    assert read_toml(file) == {"layers": 2}
    file.write_text(f"[{section}]\n{key} = {'7.5' if not isinstance(usual, str) else repr('other')}\n")
    with pytest.raises(ConfigError) as caught:
        read_toml(file)
    assert key in str(caught.value) and REMOVED[key].remedy in str(caught.value) and key not in SECTION_OF


def test_the_core_has_few_keys():
    """All keys but those declared by packages of extras; removed.py names the removed keys."""
    kinds = [*config._SHARED.values()]
    kinds += [kind for owned in config._OWNED.values() for kind in owned.values() if "extras" not in kind.__module__]
    assert len({field.name for kind in kinds for field in fields(kind)}) <= 60
