"""Parsing of the command line: numbers as people write them, shared options, and errors about unknown options."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, fields
from functools import partial
from typing import Any, cast

from hpcgnn.config import SECTION_OF, Choices, filed_value, option_of, read_toml
from hpcgnn.errors import ConfigError
from hpcgnn.option_fields import flag
from hpcgnn.options import SECTIONS
from hpcgnn.options.presets import PRESETS
from hpcgnn.suggestions import suggest
from hpcgnn.terminal import tell

# Options of every command that runs on ranks; they must be known before the ranks connect.
RANK_OPTIONS = ("comm",)


def _parsed(kind: Callable[[str], Any], said: str, text: str) -> Any:
    """Parse a word. Raises ArgumentTypeError."""
    try:
        return kind(text)
    except ValueError as error:
        short = text if len(text) <= 40 else text[:40] + "…"
        raise argparse.ArgumentTypeError(f"expected {said}, got {short!r}") from error


whole = partial(_parsed, int, "a whole number")
# How the words of options are read.
_READERS: dict[type, Callable[[str], Any]] = {int: whole, float: partial(_parsed, float, "a number"), str: str}


def rank_counts(text: str) -> list[int]:
    """The numbers of ranks that a word lists. Raises ArgumentTypeError."""
    counts = [int(part) if part.isdigit() else 0 for part in text.split(",")]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"expected numbers of ranks of at least 1, such as 4 or 1,2,4, got {text!r}")
    return counts


def about_unknown(word: str, command: str, flags: Iterable[str]) -> str:
    """Return the error message for a word that a command does not know. flags: the command's options."""
    if not word.startswith("-"):
        meant = f"--graph {word} perhaps; " if "--graph" in flags and word.endswith((".h5", ".hdf5")) else ""
        return f"unexpected argument {word!r}; {meant}see `hpcgnn {command} --help`"
    given = word.split("=")[0]
    nearest, remark = suggest(given, [flag.lstrip("-") for flag in flags])
    of_run = command in ("evaluate", "predict") and given.strip("-").replace("-", "_") in SECTION_OF
    if of_run and not nearest and not remark:
        remark = f"{command} takes all else from the run's config.toml"
    if remark:
        return f"unknown option {given}: {remark}; see `hpcgnn {command} --help`"
    expected = f"expected --{nearest} perhaps; " if nearest else ""
    return f"unknown option {given}; {expected}see `hpcgnn {command} --help`"


def add_dry_run(command: argparse.ArgumentParser) -> None:
    """The option --dry-run."""
    command.add_argument(
        "--dry-run",
        metavar="RANKS",
        type=rank_counts,
        help="check options, map and directories for N or N,N,… ranks, and stop; one process",
    )


def add_trust(command: argparse.ArgumentParser) -> None:
    """The option --trust-run."""
    command.add_argument(
        "--trust-run", action="store_true", help="run the code of another owner that the run or --config names"
    )


def dry_run(ranks: list[int], check: Callable[[], None]) -> int:
    """Check, and say that all is well; returns the exit code."""
    check()
    tell(f"dry run: all is well for {', '.join(map(str, ranks))} rank{'s' if ranks != [1] else ''}")
    return 0


def add_sections(command: argparse.ArgumentParser, choices: Choices) -> None:
    """All options of the configuration, to be read by `read_options`. `--help` lists the flags among them, and --set
    takes every key.
    """
    command.add_argument("--config", metavar="FILE.toml", help="options from this file, as a run's config.toml")
    add_trust(command)
    command.add_argument("--preset", choices=list(PRESETS), help="a named set of options (docs/options.md)")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="set any key of the configuration, such as schedule.halo=rows; repeatable",
    )
    for section, kind in SECTIONS.items():
        group = command.add_argument_group(section)
        for declared in fields(kind):
            add_option(group, declared, choices, declared.metadata["flag"])


def add_declared(command: argparse.ArgumentParser, names: Sequence[str], choices: Choices) -> None:
    """Some options of the configuration, for a command that has no others of them."""
    for declared in (f for kind in SECTIONS.values() for f in fields(kind) if f.name in names):
        add_option(command, declared, choices)


def add_option(group: argparse._ActionsContainer, declared: Field[Any], choices: Choices, shown: bool = True) -> None:
    """An option of the configuration. shown: whether `--help` lists it."""
    name, kind, rules = flag(declared.name), cast(type, declared.type), declared.metadata
    help_text = rules["help"].replace("%", "%%")
    if kind is bool:
        words = f"{help_text} (default: {declared.default})" if shown else argparse.SUPPRESS
        group.add_argument(name, action=argparse.BooleanOptionalAction, default=None, help=words)
        return
    allowed = rules["choices"]
    if isinstance(allowed, str):
        allowed = choices[allowed]
    default = "" if declared.default == "" else f" (default: {declared.default})"
    optional = {} if rules["bare"] is None else {"nargs": "?", "const": rules["bare"]}
    group.add_argument(
        name,
        type=_READERS[kind],
        choices=allowed and list(allowed),
        default=None,
        help=help_text + default if shown else argparse.SUPPRESS,
        metavar=None if allowed else {int: "N", float: "X", str: "TEXT"}[kind],
        **optional,
    )


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """{key: value} of the configuration's options that were given, as options or by --set. Raises ConfigError."""
    given = {key: value for key, value in vars(arguments).items() if key in SECTION_OF and value is not None}
    for word in getattr(arguments, "set", []):
        key, value = _set_key(word)
        if given.get(key, value) != value:
            raise ConfigError(f"--set {word}: {key} is given twice, also as {given[key]!r}; leave one out")
        given[key] = value
    return given


def read_options(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[str]]:
    """{key: value} of the preset, the file and the command line together, of the file, and of the command line; and
    lines for the log. Raises ConfigError.
    """
    filed, typed = read_toml(arguments.config) if arguments.config else {}, given_options(arguments)
    if not arguments.preset:
        return {**filed, **typed}, filed, typed, []
    preset = PRESETS[arguments.preset]
    shown = ", ".join(f"{SECTION_OF[key]}.{key}={value}" for key, value in preset.options.items())
    note = f"preset {arguments.preset}: {preset.about} ({shown})"
    return {**preset.options, **filed, **typed}, filed, typed, [note]


def _set_key(word: str) -> tuple[str, Any]:
    """(key, value) of a word SECTION.KEY=VALUE; the section may be left out. Raises ConfigError."""
    name, equals, text = word.partition("=")
    section, _, key = name.rpartition(".")
    key = key.replace("-", "_")
    if not equals:
        raise ConfigError(f"--set {word}: expected SECTION.KEY=VALUE, such as schedule.halo=rows")
    if key not in SECTION_OF:
        nearest, remark = suggest(key, SECTION_OF)
        meant = f"expected {SECTION_OF[nearest]}.{nearest} perhaps" if nearest else "docs/options.md lists all keys"
        raise ConfigError(f"--set {word}: there is no key {key!r}; {remark or meant}")
    if section not in ("", SECTION_OF[key]):
        raise ConfigError(f"--set {word}: {key} belongs to another section; write {SECTION_OF[key]}.{key}")
    kind = cast(type, option_of(key).type)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"--set {word}: expected true or false, got {text!r}")
        return key, text.lower() == "true"
    try:
        return key, _READERS[kind](text)
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"--set {word}: {error}") from error


def asked_early(argv: list[str] | None, name: str) -> tuple[str | None, str]:
    """(value, file) of a shared option before all options are known: '' is the file of one on the command line, which
    may be wrong otherwise. Raises ConfigError for a file of --config that cannot be read.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in (name, "config"):
        first.add_argument("--" + option, nargs="?")
    words = vars(first.parse_known_args(argv)[0])
    if words[name] or not words["config"]:
        return words[name], ""
    return filed_value(words["config"], name), words["config"]
