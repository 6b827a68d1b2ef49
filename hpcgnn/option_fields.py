"""How an option is declared: its default, its help, its range, and the options that it needs for an effect.

options/ declares all options with it; config.py, unused_options.py and the command line read the declarations.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

# Whole numbers are 32 bits wide somewhere below, floating-point numbers at least in fp32.
LARGEST: dict[type, float] = {int: 2**31 - 1, float: 3e38}
YEAR = 365 * 86400.0


@dataclass(frozen=True)
class Having:
    """The schedules or tasks that declare a trait (traits.py)."""

    trait: str

    def among(self, entries: Mapping[str, Any]) -> tuple[str, ...]:
        """Their names. entries: {name: traits}."""
        return tuple(name for name, traits in entries.items() if getattr(traits, self.trait))


def flag(name: str) -> str:
    """An option as it is written on the command line."""
    return "--" + name.replace("_", "-")


def in_words(values: Any) -> str:
    """The values of a need, for messages: names, or the numbers of a range without an end."""
    return f"of at least {values.start}" if isinstance(values, range) else " or ".join(map(str, values))


def allowed(values: Any, entries: Mapping[str, Any]) -> Any:
    """The values of a need; for `Having`, names of entries."""
    return values.among(entries) if isinstance(values, Having) else values


def option(  # noqa: PLR0913 - callers name them
    default: Any,
    help: str,
    *,
    details: str = "",
    flag: bool = False,
    choices: str | tuple[str, ...] | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    required: bool = False,
    schedules: Having | tuple[str, ...] | None = None,
    by_model: bool = False,
    needs: Mapping[str, Container[Any] | Having] | None = None,
    also: Mapping[str, Container[Any] | Having] | None = None,
    strict: bool = False,
    on_resume: str = "said",
    bare: str | None = None,
    check: Callable[[Any], object] | None = None,
) -> Any:
    """A documented field.

    Args:
        help: at most 12 words, for `--help`.
        details: sentences for docs/options.md.
        flag: `--help` lists the option; all others are keys for --set and TOML files.
        choices: allowed values, or a name that the program resolves.
        least, below, most: the valid range.
        schedules: the schedules that read the option: by a trait, or the one that alone has the option.
        by_model: only a model that names the option (`uses` of a ModelEntry) reads it.
        needs: {another option: its values, a range for numbers from one on}; one of them must hold.
        also: likewise, whatever the model uses.
        strict: an option without effect is an error, and not a warning (unused_options.py).
        on_resume: 'said': a resumed run may change the value, and the log names it; 'same': it must keep the value.
        check: check(value) raises ConfigError for one that cannot be.
        bare: value of the option without a word on the command line; None: it needs one.
    """
    rules = {"choices": choices, "least": least, "below": below, "most": most, "required": required}
    effect = {"schedules": schedules, "by_model": by_model, "needs": needs or {}, "also": also or {}, "strict": strict}
    words = {"help": help, "details": details, "flag": flag, "on_resume": on_resume, "bare": bare}
    return field(default=default, metadata={**words, **rules, **effect, "check": check})
