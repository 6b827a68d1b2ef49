"""The configuration: every mistake names the option and what was expected; what is written gives the same run again."""

import dataclasses

import pytest

from hpcgnn.__main__ import build_parser, main, registry_choices
from hpcgnn.config import SECTIONS, make_config, read_toml
from hpcgnn.errors import ConfigError

CHOICES = registry_choices()


def config(**values):
    return make_config({"graph": "g.h5", **values}, CHOICES)


def toml(path, text):
    (path / "c.toml").write_text(text)
    return path / "c.toml"


def test_defaults_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().model.hidden = 3


def test_toml_round_trip(tmp_path):
    original = config(hidden=7, lr=0.3, residual=True, norm="batch", run_dir='ü "x"\\', halo_buffer=0.5, seed=-3)
    assert make_config(read_toml(toml(tmp_path, original.to_toml())), CHOICES) == original.replace(run_dir="")


@pytest.mark.parametrize(
    "key, wrong",
    [
        ("layers", 0),
        ("hidden", -1),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("dropout", float("nan")),
        ("lr", -1.0),
        ("lr", float("inf")),
        ("epochs", 0),
        ("threads", -1),
        ("eval_every", -1),
        ("halo_buffer", -1.0),
        ("momentum", 1.0),
        ("lr_step_epochs", 0),
        ("log_every", -1),
    ],
)
def test_ranges(key, wrong):
    with pytest.raises(ConfigError, match=f"--{key.replace('_', '-')}: expected at least"):
        config(**{key: wrong})


@pytest.mark.parametrize(
    "key, wrong", [("layers", "3"), ("layers", 2.5), ("layers", True), ("lr", "high"), ("residual", 1), ("model", 5)]
)
def test_types(key, wrong):
    with pytest.raises(ConfigError, match=f"--{key}: expected"):
        config(**{key: wrong})


@pytest.mark.parametrize(
    "key", ["model", "norm", "schedule", "optimizer", "precision", "metric", "input_dropout", "self_loops"]
)
def test_choices_are_listed(key):
    with pytest.raises(ConfigError, match="expected one of .*got 'nonsense'"):
        config(**{key: "nonsense"})


@pytest.mark.parametrize(
    "key, value, remedy",
    [
        ("halo_dtype", "auto", "int8"),
        ("halo_dtype", "int4", "int8"),
        ("halo_dtype", "fp16", "bf16"),
        ("keep", "least", "take more ranks"),
    ],
)
def test_a_value_that_is_gone_has_a_remedy(key, value, remedy):
    with pytest.raises(ConfigError, match=f"got '{value}' .* is of an earlier version: {remedy}"):
        config(**{key: value})


def test_whole_numbers_are_good_floats():
    assert config(lr=1).optim.lr == 1.0 and isinstance(config(lr=1).optim.lr, float)


def test_the_graph_is_required():
    with pytest.raises(ConfigError, match="--graph is required"):
        make_config({}, CHOICES)


@pytest.mark.parametrize(
    "text, nearest",
    [
        ("[model]\nhiden = 3", "'hidden'"),
        ("[optim]\nlearning_rate = 1.0", "one of"),
        ("[modell]\nhidden = 3", "'model'"),
        ("hidden = 3", "unknown section"),
        ("[optim]\nhidden = 3", r"belongs in \[model\]"),
        ("[run]\nsead = 3", "'seed'"),
        ("[schedule]\nhalo-buffer = 3.0", "'halo_buffer'"),
    ],
)
def test_an_unknown_key_names_the_nearest(tmp_path, text, nearest):
    with pytest.raises(ConfigError, match=nearest):
        read_toml(toml(tmp_path, text))


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
    monkeypatch.setattr("hpcgnn.comm.launch.run.run", lambda function, threads, **more: function(None))
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
        ([], "COMMAND"),
        (["train", "--graph", "g", "--dropout", "1"], "below 1"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(capsys, argv, words):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("hpcgnn: error: ") and captured.err.count("\n") == 1
    assert words in captured.err


def test_the_command_line_of_the_documentation():
    """These names are used by scripts elsewhere and stay."""
    line = (
        "train --graph g.h5 --model gcn --layers 3 --hidden 256 --epochs 200 --lr 0.01 --weight-decay 0 --dropout 0.5 "
        "--norm none --schedule sar --halo-buffer 0.5 --partition NAME --threads 2 --seed 1 --eval-every 5 "
        "--run-dir DIR --resume --config F.toml --input-dropout raw --weight-decay-layers first --auto-partition"
    )
    arguments = vars(build_parser(CHOICES).parse_args(line.split()))
    assert (
        arguments["halo_buffer"] == 0.5 and arguments["resume"] is True and arguments["weight_decay_layers"] == "first"
    )


def test_every_option_has_help_and_one_home():
    names = [field.name for kind in SECTIONS.values() for field in dataclasses.fields(kind)]
    assert len(names) == len(set(names))
    assert all(field.metadata["help"] for kind in SECTIONS.values() for field in dataclasses.fields(kind))


def test_products_of_fp64_cannot_be_rounded():
    with pytest.raises(ConfigError, match="--matmul medium rounds the factors of fp32 products, got --precision fp64"):
        config(matmul="medium", precision="fp64")
