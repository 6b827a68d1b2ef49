"""Options without effect under the other choices: one line of warning, or a refusal.

An option's declaration has its needs (option_fields.py). A model's entry lists the options that the model uses
(nn/registry.py). An option on the command line always counts as given. An option in a file counts only where its
value is not the default, since the config.toml of a run holds every option.
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any

from hpcgnn.errors import ConfigError
from hpcgnn.option_fields import allowed, flag, in_words
from hpcgnn.options import SECTIONS

if TYPE_CHECKING:
    from hpcgnn.config import Config

# More models than these are not listed.
_FEW = 4


def without_effect(
    config: "Config", typed: Collection[str], filed: Collection[str], choices: Mapping[str, Any]
) -> str | None:
    """One line about the options that were given in vain, or None. Raises ConfigError for a strict option among them.

    config: all options; typed, filed: {option: value} from the command line and from a file; choices: the result
    of `registry_choices` (plan/choices.py).
    """
    chosen = {name: value for section in config.to_dict().values() for name, value in section.items()}
    reasons: dict[str, list[str]] = {}
    for declared in (declared for kind in SECTIONS.values() for declared in fields(kind)):
        name = declared.name
        usual = chosen[name] == declared.default
        if (name in typed and chosen[name] is not False) or (name in filed and not usual):
            reason = _in_vain(declared, chosen, choices)
            if reason and declared.metadata["strict"] and not usual:
                shown = "" if chosen[name] is True else f" {chosen[name]}"
                raise ConfigError(
                    f"{flag(name)}{shown} has no effect as it stands ({reason}); leave it out, or change that"
                )
            if reason:
                reasons.setdefault(reason, []).append(flag(name))
    if not reasons:
        return None
    return "without effect: " + "; ".join(f"{', '.join(flags)} ({reason})" for reason, flags in reasons.items())


def _in_vain(declared: Field[Any], chosen: Mapping[str, Any], choices: Mapping[str, Any]) -> str | None:
    """Why an option has no effect, or None."""
    name, rules, model, uses = declared.name, declared.metadata, chosen["model"], choices["models"]
    used, schedules = uses.get(model), allowed(rules["schedules"], choices["schedules"])
    needs = {other: allowed(values, choices.get(f"{other}s", {})) for other, values in rules["needs"].items()}
    if any(chosen[other] in allowed(values, choices.get(f"{other}s", {})) for other, values in rules["also"].items()):
        return None
    if schedules is not None and chosen["schedule"] not in schedules:
        return f"for --schedule {', '.join(schedules)}, got {chosen['schedule']}"
    if rules["by_model"]:
        if used is None:
            return None
        if name not in used:
            users = [other for other, names in uses.items() if names and name in names]
            wanted = f"for --model {', '.join(users)}, got" if len(users) <= _FEW else "not for --model"
            return f"{wanted} {model}"
    if not needs or any(chosen[other] in values for other, values in needs.items()):
        return None
    alternatives = [(other, values, chosen[other]) for other, values in needs.items()]
    got = f", got {alternatives[0][2]}" if len(alternatives) == 1 and alternatives[0][2] != "" else ""
    return "needs " + " or ".join(_need(*each[:2]) for each in alternatives) + got


def _need(other: str, values: Container[Any]) -> str:
    if values == ("",):
        return f"no {flag(other)}"
    return f"{flag(other)} {in_words(values)}"
