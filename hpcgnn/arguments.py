"""Words of the command line: numbers as people write them, and what to say about options that do not exist."""

import argparse
from collections.abc import Iterable

from hpcgnn.config import SECTION_OF
from hpcgnn.suggestions import elsewhere, suggest


def whole(text: str) -> int:
    """The int that a word says. Raises ArgumentTypeError."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        meant = int(float(text))
        hint = f"; write {meant}" if meant == float(text) else ""
    except (ValueError, OverflowError):
        hint = ""
    raise argparse.ArgumentTypeError(f"expected a whole number, got {_short(text)}{hint}")


def real(text: str) -> float:
    """The float that a word says. Raises ArgumentTypeError."""
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a number, got {_short(text)}") from error


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def about_unknown(word: str, command: str, flags: Iterable[str]) -> str:
    """What to say about a word that a command does not know. flags: its options."""
    if not word.startswith("-"):
        return f"unexpected argument {word!r}; see `hpcgnn {command} --help`"
    given = word.split("=")[0]
    nearest, remark = suggest(given, [flag.lstrip("-") for flag in flags])
    if command == "evaluate" and not nearest and not remark and elsewhere(given, SECTION_OF):
        remark = "an evaluation takes all else from the run's config.toml"
    if remark:
        return f"unknown option {given}: {remark}; see `hpcgnn {command} --help`"
    expected = f"expected --{nearest} perhaps; " if nearest else ""
    return f"unknown option {given}; {expected}see `hpcgnn {command} --help`"
