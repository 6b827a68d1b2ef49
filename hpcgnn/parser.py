"""The parser of both command lines: a wrong word ends in one line, as all other mistakes of a user do."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from hpcgnn.errors import ConfigError
from hpcgnn.likely_names import perhaps


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the name that was probably meant and the command for help.

    elsewhere: {a word that is a command of another program: that program}.
    """

    elsewhere: Mapping[str, str] = {}
    _words: Sequence[str] = ()

    def __init__(self, **given: Any) -> None:
        """given: as of argparse. Without others, words are not to be shortened, and texts are shown as they are."""
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(**{"allow_abbrev": False, "formatter_class": formatter, **given})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = args or ()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        strange = [word for word in self._words if word.startswith("--") and word not in self._option_string_actions]
        if "are required" in message and strange:  # what is lacking stands under another name, perhaps
            given = strange[0].split("=")[0]
            message = f"{given} is no option{perhaps(given, self._option_string_actions)}; {message}"
        raise ConfigError(f"{message.removeprefix('argument ')}; see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if not action.option_strings and value in self.elsewhere:
            self.error(f"{value} is a command of another program: `{self.elsewhere[value]} {value}`")
        known = [str(each) for each in action.choices]
        what = "/".join(action.option_strings) or action.metavar
        self.error(f"{what}: expected one of {', '.join(known)}, got {value!r}{perhaps(str(value), known)}")

    def name_commands(self) -> None:
        """Note in the result of each command its options and its own name."""
        nested = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        for each in (each for action in nested for each in action.choices.values()):
            each.name_commands()
        if not nested:
            flags = [flag for action in self._actions for flag in action.option_strings]
            self.set_defaults(flags=flags, prog=self.prog)
