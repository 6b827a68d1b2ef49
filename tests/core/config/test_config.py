"""The configuration: every mistake names the option and the expected value; a written file gives the same run again."""

import dataclasses
import math

import pytest

from hpcgnn.__main__ import main, registry_choices
from hpcgnn.config import SECTIONS, make_config, read_toml
from hpcgnn.errors import ConfigError

CHOICES = registry_choices()


def config(**values):
    return make_config({"graph": "g.h5", **values}, CHOICES)


def toml(path, text):
    (path / "c.toml").write_text(text)
    return path / "c.toml"


def test_toml_round_trip(tmp_path):
    original = config(hidden=7, lr=0.3, residual=True, norm="batch", run_dir='ü "x"\\', halo_buffer=0.5, seed=-3)
    assert make_config(read_toml(toml(tmp_path, original.to_toml())), CHOICES) == original.replace(run_dir="")


OUT_OF_RANGE = (("layers", 0), ("dropout", 1.0), ("dropout", -0.1))
OF_ANOTHER_TYPE = (("layers", "3"), ("layers", 2.5), ("layers", True), ("lr", "high"), ("residual", 1), ("model", 5))
CHOSEN = "model norm schedule optimizer precision metric input_dropout self_loops".split()
GONE = (
    ("halo_dtype", "auto", "int8"),
    ("halo_dtype", "int4", "int8"),
    ("halo_dtype", "fp16", "bf16"),
    ("keep", "least", "take more ranks"),
)


@pytest.mark.parametrize(
    "key, wrong, words",
    [
        *((key, wrong, f"--{key.replace('_', '-')}: expected at least") for key, wrong in OUT_OF_RANGE),
        *((key, wrong, f"--{key}: expected") for key, wrong in OF_ANOTHER_TYPE),
        *((key, "nonsense", "expected one of .*got 'nonsense'") for key in CHOSEN),
        *((key, gone, f"got '{gone}' .* is of an earlier version: {remedy}") for key, gone, remedy in GONE),
    ],
)
def test_what_is_refused(key, wrong, words):
    with pytest.raises(ConfigError, match=words):
        config(**{key: wrong})


def test_numbers_that_no_machine_can_hold():
    wrong = {int: (10**23, -(10**23)), float: (math.nan, math.inf, -math.inf, 1e39, -1.0)}
    for kind in SECTIONS.values():
        for declared in dataclasses.fields(kind):
            for value in wrong.get(declared.type, ()):
                with pytest.raises(
                    ConfigError, match=f"--{declared.name.replace('_', '-')}: expected at least"
                ) as caught:
                    config(**{declared.name: value})
                assert value != math.inf or " and " in str(caught.value), "the upper end of the range"


def test_whole_numbers_are_good_floats():
    assert config(lr=1).optim.lr == 1.0 and isinstance(config(lr=1).optim.lr, float)


@pytest.mark.parametrize(
    "text, words",
    [
        ("[model]\nhiden = 3", "'hidden'"),
        ("[modell]\nhidden = 3", "expected one of: data, task, model,"),
        ("hidden = 3", "expected [model], where 'hidden' belongs"),
        ("[optim]\nhidden = 3", "expected 'hidden' in [model]"),
        ("[schedule]\nhalo-buffer = 3.0", "'halo_buffer'"),
        ("[model]\nlearning_rate = 1.0", "expected 'lr' in [optim]"),
        ("[optim]\nbatch_size = 1", "there are no batches"),
        ("[optim]\nquux = 1", "; expected one of: optimizer, lr,"),
        ("[model]\nlayers = 1e3", "--layers: expected a whole number, got 1000.0"),
        (f"[model]\nlayers = {10**23}", "--layers: expected at least"),
        (f"[optim]\nlr = 1{'0' * 400}", "--lr: expected at least"),
        ("[optim]\nlr = inf", "--lr: expected at least"),
    ],
)
def test_mistakes_in_a_file(tmp_path, text, words):
    with pytest.raises(ConfigError) as caught:
        make_config({"graph": "g.h5", **read_toml(toml(tmp_path, text))}, CHOICES)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_are_no_toml(tmp_path):
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(toml(tmp_path, "[model\n"))
    with pytest.raises(ConfigError, match="cannot read"):
        read_toml(tmp_path / "absent.toml")
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="no text in UTF-8.*iconv"):
        read_toml(tmp_path / "c.toml")
    (tmp_path / "c.toml").write_bytes(b"\xef\xbb\xbf[model]\r\nhidden = 3\r\n")  # as editors of Windows do
    assert read_toml(tmp_path / "c.toml") == {"hidden": 3}
    with pytest.raises(ConfigError, match="--graph: .* is no text in UTF-8"):
        make_config({"graph": "g\udcff.h5"}, CHOICES)


def test_the_command_line_overrides_the_file(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("hpcgnn.comm.run.run", lambda function, threads, **more: function(None))
    monkeypatch.setattr("hpcgnn.app.train.train", lambda config, *more: seen.append(config) or 0)
    file = toml(
        tmp_path, '[data]\ngraph = "g.h5"\n[model]\nhidden = 7\nlayers = 2\nresidual = true\n[optim]\nlr = 0.5\n'
    )
    assert main(["train", "--config", str(file), "--hidden", "9", "--no-residual"]) == 0
    assert (seen[0].model.hidden, seen[0].model.layers, seen[0].model.residual, seen[0].optim.lr) == (9, 2, False, 0.5)


@pytest.mark.parametrize(
    "argv, words",
    [
        (["train"], "--graph is required"),
        (["train", "--graph", "g", "--hiddn", "3"], "--hidden"),
        (["train", "--graph", "g", "--lr", "x"], "lr"),
        (["train", "--graph", "g", "--model", "no-such"], "gcn"),
        (["trian"], "train"),
        (["train", "g.h5"], "unexpected argument 'g.h5'"),
        (["evaluate", "runs/x", "--hidden", "3"], "evaluate takes all else from the run's config.toml"),
        (["evaluate", "runs/x", "--weight", "3"], "expected --weights"),
        ([], "COMMAND"),
        (["train", "--graph", "g", "--dropout", "1"], "below 1"),
        (["train", "--graph", "g", "--layers", "1e3"], "expected a whole number, got '1e3'"),
        (["train", "--graph", "g", "--lr", "high"], "expected a number, got 'high'"),
        (["train", "--graph", "g", "--lr=1e400"], "--lr: expected at least"),
        (
            ["train", "--graph", "g", "--seed", "9" * 23],
            "at least -9223372036854775808 and at most 9223372036854775807",
        ),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(capsys, argv, words):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("hpcgnn: error: ") and captured.err.count("\n") == 1
    assert words in captured.err
