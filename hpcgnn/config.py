"""The configuration of a run: frozen, checked when made, and written in full into every run directory.

The options are declared in options/. The command line, the TOML file and the error that names the nearest valid key
are all derived from those declarations. Precedence: command line, then file, then default.
"""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any, Self, cast

import tomli_w

from hpcgnn.errors import ConfigError
from hpcgnn.likely_names import file_beside, perhaps
from hpcgnn.option_fields import LARGEST, flag
from hpcgnn.options import SECTIONS, DataConfig, ModelConfig, OptimConfig, RunConfig, ScheduleConfig, TaskConfig
from hpcgnn.options.removed import REMOVED, REMOVED_VALUES, refuse_removed
from hpcgnn.suggestions import suggest

# Names that the registries offer: {"models": {name: the options `by_model` that it uses, None where not known},
# "norms": names, "schedules": {name: ScheduleTraits}};
# and "check": raises ConfigError for options that do not go together.
Choices = Mapping[str, Any]
SECTION_OF = {f.name: section for section, kind in SECTIONS.items() for f in fields(kind)}
# {section: its options that no owner declares}; {section: {owner: dataclass of its options}}.
_SHARED, _OWNED = dict(SECTIONS), {section: dict[str, type]() for section in SECTIONS}


def declare(section: str, owner: str, kind: type) -> None:
    """Add the options of an owner, such as a schedule, to a section.

    Args:
        section: a key of SECTIONS, whose class gives way to one with these options as well.
        owner: its name.
        kind: a frozen dataclass of the options, derived from the section's.

    Raises:
        ValueError: an option of this name exists.
    """
    base, owned = _SHARED[section], _OWNED[section]
    shared = {f.name for f in fields(base)}
    new = [f.name for f in fields(kind) if f.name not in shared]
    for name in new:
        if name in SECTION_OF:
            raise ValueError(f"{owner}: the option {name!r} exists in [{SECTION_OF[name]}]; choose another name")
    SECTION_OF.update(dict.fromkeys(new, section))
    owned[owner] = kind
    parts = tuple(reversed(owned.values()))  # dataclasses take the fields of the last one first
    SECTIONS[section] = dataclass(frozen=True, kw_only=True)(type(base.__name__, parts, {"__doc__": base.__doc__}))


def option_of(name: str) -> Field[Any]:
    """The declaration of an option."""
    return next(f for f in fields(SECTIONS[SECTION_OF[name]]) if f.name == name)


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole configuration, one dataclass per section."""

    data: DataConfig
    task: TaskConfig
    model: ModelConfig
    optim: OptimConfig
    schedule: ScheduleConfig
    run: RunConfig

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """{section: {key: value}}, every option with its value."""
        return dataclasses.asdict(self)

    def to_toml(self) -> str:
        """The text of a TOML file that gives this configuration again, into a run directory of its own."""
        sections = self.to_dict()
        del sections["run"]["run_dir"], sections["run"]["resume"]
        return tomli_w.dumps(sections)

    def replace(self, **values: Any) -> Self:
        """A copy with some options (by their flat names) changed."""
        changed = {section: {k: v for k, v in values.items() if SECTION_OF[k] == section} for section in SECTIONS}
        return dataclasses.replace(
            self,
            **{section: dataclasses.replace(getattr(self, section), **new) for section, new in changed.items() if new},
        )


def make_config(values: Mapping[str, Any], choices: Choices, origin: str = "the command line") -> Config:
    """A checked Config from flat values {key: value}; missing keys take their defaults.

    choices: the result of `registry_choices` (plan/choices.py). Raises ConfigError.
    """
    parts: dict[str, Any] = {}
    for section, kind in SECTIONS.items():
        given = {}
        for declared in fields(kind):
            if declared.name in values:
                given[declared.name] = _checked(declared, values[declared.name], choices, origin)
            elif declared.metadata["required"]:
                raise ConfigError(f"{flag(declared.name)} is required: {declared.metadata['help']}")
        parts[section] = kind(**given)
    config = Config(**parts)
    choices["check"](config)
    return config


def _checked(declared: Field[Any], value: Any, choices: Choices, origin: str) -> Any:
    name, kind, rules = flag(declared.name), cast(type, declared.type), declared.metadata
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= LARGEST[float] else float("inf")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
        raise ConfigError(f"{name}: expected {wanted}, got {value!r} ({origin})")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ConfigError(f"{name}: {value} is no text in UTF-8, which records of a run are; give it another name")
    allowed = choices[rules["choices"]] if isinstance(rules["choices"], str) else rules["choices"]
    if allowed is not None and value not in allowed:
        gone = REMOVED_VALUES.get(declared.name, {}).get(str(value))
        remark = f", which is of an earlier version: {gone}" if gone else perhaps(str(value), allowed)
        raise ConfigError(f"{name}: expected one of {', '.join(allowed)}, got {value!r} ({origin}){remark}")
    if rules["check"] is not None:
        rules["check"](value)
    if kind in LARGEST:
        _check_range(name, value, rules, LARGEST[kind], origin)
    return value


def _check_range(name: str, value: Any, rules: Mapping[str, Any], largest: float, origin: str) -> None:
    """Raise ConfigError for a number outside its range. Comparisons with NaN are false."""
    least, below = rules["least"], rules["below"]
    most = largest if rules["most"] is None else rules["most"]
    if value >= least and (value < below if below is not None else value <= most):
        return
    upper = f" and below {below}" if below is not None else ""
    if not upper and (rules["most"] is not None or value > most):
        upper = f" and at most {most}"
    raise ConfigError(f"{name}: expected at least {least}{upper}, got {value} ({origin})")


def per_layer(option: str, text: str, layers: int, default: int) -> list[int]:
    """A whole number from 1 for each layer, of a comma list of as many, one number for all, or the default. Raises
    ConfigError.
    """
    try:
        values = [int(part) for part in text.split(",")] if text.strip() else [default]
    except ValueError:
        values = [0]
    if len(values) not in (1, layers) or not all(1 <= value <= LARGEST[int] for value in values):
        raise ConfigError(
            f"{option}: expected one whole number from 1, or {layers} for the {layers} layers, joined by commas, got "
            f"{text!r}"
        )
    return values if len(values) == layers else values * layers


def read_toml(path: str | Path, without: Sequence[str] = ()) -> dict[str, Any]:
    """Flat values of a TOML file with the sections of `SECTIONS`. An unknown key is an error that names the nearest
    valid one. without: keys that are left out, whatever their values.
    """
    document = _document(path)
    values = {}
    for section, entries in document.items():
        if section not in SECTIONS or not isinstance(entries, dict):
            home = f"[{SECTION_OF[section]}], where {section!r} belongs" if section in SECTION_OF else ""
            wanted = home or f"one of: {', '.join(SECTIONS)}"
            raise ConfigError(f"{path}: unknown section [{section}]; expected {wanted}")
        known = [f.name for f in fields(SECTIONS[section])]
        for key, value in entries.items():
            if key in without:
                continue
            if key in REMOVED:
                refuse_removed(key, value, str(path))
                continue
            if key not in known:
                raise ConfigError(f"{path}: unknown key {key!r} in [{section}]{_meant(key, known)}")
            values[key] = value
    return values


def filed_value(path: str | Path, name: str) -> Any:
    """The value of a shared option in a TOML file, or None: before all owners of options are known. Raises
    ConfigError.
    """
    section = _document(path).get(SECTION_OF[name], {})
    return section.get(name) if isinstance(section, dict) else None


def _document(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))  # editors of Windows mark UTF-8
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration {path}: {error.strerror}; expected a TOML file{file_beside(path)}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8: {error}; convert it: iconv -f utf-16 -t utf-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _meant(key: str, known: Sequence[str]) -> str:
    name, remark = suggest(key, SECTION_OF)
    if remark:
        return f": {remark}"
    return f"; expected {name!r} in [{SECTION_OF[name]}]" if name else f"; expected one of: {', '.join(known)}"
