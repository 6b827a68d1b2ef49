"""Suggestions for options that do not exist go by meaning, then by spelling; otherwise there is none."""

import pytest

from hpcgnn.__main__ import main
from hpcgnn.config import SECTION_OF
from hpcgnn.suggestions import suggest


@pytest.mark.parametrize(
    "given, option",
    [
        ("--learning-rate", "lr"),
        ("--num-layers", "layers"),
        ("--hidden-channels", "hidden"),
        ("--wd", "weight_decay"),
        ("--attn-drop", "attention_dropout"),
        ("--out", "run_dir"),
        ("--early-stopping", "patience"),
        ("--amp", "precision"),
        ("--eval_every", "eval_every"),
        ("--Epochs", "epochs"),
        ("--halo-bufer", "halo_buffer"),
        ("--lr=3", "lr"),
    ],
)
def test_an_option(given, option):
    assert suggest(given, SECTION_OF) == (option, None)


@pytest.mark.parametrize(
    "given, words",
    [
        ("--batch-size", "there are no batches"),
        ("--gpu", "runs on CPUs"),
        ("--fanout", "nothing is sampled"),
        ("--np", "mpiexec -n"),
    ],
)
def test_what_there_is_no_option_for(capsys, given, words):
    assert words in suggest(given, SECTION_OF)[1]
    assert main(["train", "--graph", "g.h5", given, "3"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"hpcgnn: error: unknown option {given}: ") and words in error and error.count("\n") == 1
    assert "perhaps" not in error


@pytest.mark.parametrize("given", ["--quux", "--verbose", "--x", "--zebra-crossing"])
def test_nothing_rather_than_a_guess(capsys, given):
    assert suggest(given, SECTION_OF) == (None, None)
    assert main(["train", "--graph", "g.h5", given]) == 2
    assert capsys.readouterr().err == f"hpcgnn: error: unknown option {given}; see `hpcgnn train --help`\n"
