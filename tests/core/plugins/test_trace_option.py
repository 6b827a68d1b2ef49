"""`--trace`: which epochs it means, and what it says of words that mean none."""

import argparse

import pytest

from hpcgnn.__main__ import build_parser, registry_choices
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError
from hpcgnn.options.run import epochs_to_trace


@pytest.mark.parametrize(
    "text, first, last", [("3-4", 3, 4), ("7-7", 7, 7), ("1", 2, 2), ("5", 2, 6), ("1-2", 1, 2), ("", 1, 0)]
)
def test_epochs(text, first, last):
    assert epochs_to_trace(text) == (first, last)


@pytest.mark.parametrize("text", ["0", "-3", "4-3", "0-2", "3-", "a", "1.5", "2-3-4", "²"])
def test_no_epochs(text):
    with pytest.raises(ConfigError, match="--trace: expected a number of epochs, such as 3, or the first and the last"):
        epochs_to_trace(text)
    with pytest.raises(ConfigError, match="--trace"):
        make_config({"graph": "g.h5", "trace": text}, registry_choices())


def test_the_command_line_takes_it_without_a_value():
    parser = build_parser(registry_choices())

    def given(*words) -> argparse.Namespace:
        return parser.parse_args(["train", "--graph", "g.h5", *words])

    assert given("--trace").trace == "2-4" and given("--trace", "--lr", "0.1").trace == "2-4"
    assert given("--trace", "3-4").trace == "3-4" and given().trace is None
