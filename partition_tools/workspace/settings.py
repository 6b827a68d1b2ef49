"""Options that a reader or a step declares beside its code, as fields of a dataclass; `--set KEY=VALUE` gives them."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, field, fields
from typing import Any, TypeVar

from hpcgnn.errors import ConfigError

Kind = TypeVar("Kind")


def key(
    name: str, default: Any, help: str, read: Callable[[str], Any] = str, choices: tuple[str, ...] | None = None
) -> Any:
    """A field of a dataclass with a key SECTION.KEY. read: from the text of a value; it raises ValueError."""
    return field(default=default, metadata={"key": name, "help": help, "read": read, "choices": choices})


def truth(text: str) -> bool:
    """True or false. Raises ValueError."""
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def names(text: str) -> tuple[str, ...]:
    """The names between commas."""
    return tuple(name.strip() for name in text.split(","))


def declared(kinds: Iterable[type]) -> dict[str, Field[Any]]:
    """{key: its field} of dataclasses."""
    return {each.metadata["key"]: each for kind in kinds for each in fields(kind) if "key" in each.metadata}


def check_choices(options: Any) -> None:
    """Raise ConfigError for a value that is none of the choices of its field."""
    for each in fields(options):
        known, value = each.metadata.get("choices"), getattr(options, each.name)
        if known and value not in known:
            raise ConfigError(f"{each.name} must be one of {', '.join(known)}, got {value!r}")


def values_of(words: Iterable[str], known: Mapping[str, Field[Any]]) -> dict[str, Any]:
    """{key: value} of words KEY=VALUE. Raises ConfigError."""
    found = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"expected {near[0]}={text or 'VALUE'} perhaps" if near else "docs/options.md lists the keys"
            raise ConfigError(f"--set {word}: there is no such key; {meant}")
        try:
            found[name] = known[name].metadata["read"](text)
        except ValueError as error:
            raise ConfigError(f"--set {word}: {error}") from error
    return found


def made(kind: type[Kind], values: Mapping[str, Any], **more: Any) -> Kind:
    """A dataclass of {key: value}; keys of others are left out. more: {field: value}."""
    given = {each.name: values[name] for name, each in declared([kind]).items() if name in values}
    return kind(**given, **more)
