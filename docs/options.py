#!/usr/bin/env python3
"""Writes docs/options.md: a list of the options of every command, from the parsers that read the command lines.

    python docs/options.py [FILE]

tests/docs holds the page to what this writes, so that an option and its description cannot drift apart.
"""

import argparse
import re
import sys
from dataclasses import fields
from pathlib import Path

from hpcgnn.__main__ import build_parser
from hpcgnn.config import SECTION_OF
from hpcgnn.option_fields import allowed, flag, in_words
from hpcgnn.options import SECTIONS
from hpcgnn.options.presets import PRESETS
from hpcgnn.plan.choices import registry_choices
from partition_tools.cli import import_graph, partition_graph
from partition_tools.cli.main import build_parser as build_tools_parser

PAGE = Path(__file__).resolve().parent / "options.md"
CHOICES = registry_choices()  # with the options that schedules declare
DECLARED = {declared.name: declared for kind in SECTIONS.values() for declared in fields(kind)}
# These commands take all options of another one, which has the list of them.
# Of commands of partition_tools, {key: its field}.
KEYS = {"import": import_graph.KEYS, "partition add": partition_graph.KEYS}
LIKE = {"certify": "train", "estimate": "train", "import-weights": "train"}
SECTION_TITLES = {
    "data": "The graph",
    "task": "Task and inputs",
    "model": "Model",
    "optim": "Optimizer",
    "schedule": "Schedule and halo",
    "run": "Run",
}

HEAD = """# Options

Every option of every command. `python docs/options.py` writes this page from the parsers.

`hpcgnn train --help` lists the flags in **bold** below. All other keys of the configuration have three spellings:
`--set section.key=VALUE`, `--key VALUE`, and a line in a TOML file (`--config`) under its section, with `_` for `-`.
The command line overrides the file, the file the preset, and the preset the `config.toml` of a resumed run. A default
stands in parentheses after its option. All needs between semicolons must hold. A word in front, as in
"links: …", is the task, the schedule or the model that the option needs. `--no-NAME` turns a switch off.

"""


def main(path: Path = PAGE) -> None:
    """Write the page."""
    choices = CHOICES
    ours, tools = build_parser(choices), build_tools_parser()
    lines = []
    for program, parser in (("hpcgnn", ours), ("python -m partition_tools", tools)):
        commands, described = _commands(parser), {}
        for name, command, about in commands:
            others = dict(c[:2] for c in commands)
            lines += _command(f"{program} {name}", name, command, about, others, choices, described)
            lines += _keys(KEYS.get(name, {}), command)
    path.write_text(HEAD + "\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _commands(parser):
    """[(name, parser, what it does)] of a parser's sub-commands, and of theirs in turn."""
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {choice.dest: choice.help for choice in action._choices_actions}
            for name, command in action.choices.items():
                below = [(f"{name} {inner}", *rest) for inner, *rest in _commands(command)]
                found += below or [(name, command, about.get(name))]
    return found


def _command(title, name, command, about, commands, choices, described):
    """The lines of a command: its heading, what it does, and a list for each of its groups.

    described: {(option, meaning): title of the first command that has it}; options of earlier ones are named alone.
    """
    lines = [f"## {title}", "", _sentence(about), ""]
    other = commands.get(LIKE.get(name))
    known = set() if other is None else {option for action in other._actions for option in action.option_strings}
    if other is not None:
        lines += [f"All options of [{LIKE[name]}](#hpcgnn-{LIKE[name]}), and:", ""]
    plain, groups, again = [], [], {}
    for group in command._action_groups:
        taken = set() if group.title == name else known  # a command's own option may have the name of another one's
        actions = []
        for action in group._group_actions:
            if not _shown(action) or set(action.option_strings) & taken:
                continue
            first = described.setdefault((_written(action), _meaning(action)), title)
            if first == title or not action.option_strings:
                actions.append(action)
            else:
                again.setdefault(first, []).append(f"`{action.option_strings[-1]}`")
        if group.title in ("positional arguments", "options", name):
            plain += actions
        elif actions:
            groups += _group(group.title, actions, choices)
    lines += _list([_written(action), _help(action)] for action in plain)
    for first, options in again.items():
        short = first.removeprefix("hpcgnn ").removeprefix("python -m partition_tools ")
        groups += [f"As in [{short}](#{re.sub('[ -]+', '-', first)}): {', '.join(options)}.", ""]
    return [*lines, *(_presets() if name == "train" else []), *groups]


def _keys(known, command):
    """A list of the keys of --set that no flag of the command has. known: {key: its field}."""
    meant = {_help(action) for action in command._actions}
    rows = []
    for name, declared in sorted(known.items()):
        words = declared.metadata["choices"]
        meaning = declared.metadata["help"] + (f": {', '.join(words)}" if words else "")
        rows.append([f"`{name}`" + _default(declared.default), meaning])
    flags = [name for name, meaning in rows if meaning in meant]
    rows = [row for row in rows if row[0] not in flags]
    same = [f"Keys of the flags above: {', '.join(flags)}.", ""] if flags else []
    return ["Keys of `--set`:", "", *_list(rows), *same] if rows else []


def _presets():
    """The list of --preset."""
    rows = []
    for name, preset in PRESETS.items():
        options = " ".join(f"`{SECTION_OF[key]}.{key}={value}`" for key, value in preset.options.items())
        rows.append([f"`{name}`", f"{preset.about}: {options}"])
    return ["### Presets", "", *_list(rows)]


def _shown(action):
    hidden = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    return not hidden and (action.help != argparse.SUPPRESS or action.dest in SECTION_OF)


def _group(title, actions, choices):
    """A list under the title of a group; one of declared options has the needs of each."""
    if title in SECTION_TITLES and all(action.dest in SECTION_OF for action in actions):
        rows = [_declared_row(action, choices) for action in actions]
        return [f"### {SECTION_TITLES[title]}: section `[{title}]`", "", *_list(rows)]
    return [f"Of {_escaped(title)}:", "", *_list([_written(action), _help(action)] for action in actions)]


def _list(rows):
    """Rows of an option and its meaning as the items of a list."""
    items = [f"* {name}" + (f": {_linked(_escaped(meaning))}" if meaning else "") for name, meaning in rows]
    return [*items, ""] if items else []


def _default(kept):
    """The default of an option in parentheses, behind its name; none of switches that are off."""
    return " (yes)" if kept is True else f" (`{kept}`)" if kept not in (None, "", ()) and kept is not False else ""


def _declared_row(action, choices):
    """An option of the configuration: as it is written, with its default; its help, and what it needs."""
    declared = DECLARED[action.dest]
    written, rules = _written(action), declared.metadata
    meaning = re.sub(r" \(default: [^()]*\)", "", f"{rules['help']}. {rules['details']}".rstrip(". "))
    needs = _effect(rules, declared.name, choices)
    if re.sub(r"^--\w+ ", "", needs.replace("`", "")) == meaning.partition(": ")[0]:
        needs = ""  # the meaning begins with it
    name = (f"**{written}**" if rules["flag"] else written) + _default(declared.default)
    return [name, meaning + (f". Needs {needs}" if needs else "")]


def _effect(rules, name, choices):
    """What else must be chosen so that an option has an effect: all that is separated by semicolons."""
    schedules = allowed(rules["schedules"], choices["schedules"])
    parts = ["`--schedule " + "`, `".join(schedules) + "`"] if schedules else []
    if rules["by_model"]:
        users = [model for model, used in choices["models"].items() if used and name in used]
        rest = [model for model, used in choices["models"].items() if used is not None and name not in used]
        few = len(users) <= len(rest)
        parts.append(("`--model " if few else "any `--model` but `") + "`, `".join(users if few else rest) + "`")
    needs = [_need(other, allowed(values, choices.get(f"{other}s", {}))) for other, values in rules["needs"].items()]
    return "; ".join([*parts, " or ".join(needs)] if needs else parts)


def _need(other, values):
    """One of the needs of an option, in words."""
    if values == ("",):
        return f"no `{flag(other)}`"
    return f"`{flag(other)} {in_words(values)}`"


def _written(action):
    """An option with the word that follows it, or the name of an argument."""
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    if isinstance(action, argparse.BooleanOptionalAction):
        return f"`{action.option_strings[0]}`"
    word = ""
    if action.nargs != 0:
        word = action.metavar or (None if action.choices else action.dest.upper())
        word = word if isinstance(word, str) else " ".join(word or ())
        if action.choices and not action.metavar:
            word = "{" + ",".join(map(str, action.choices)) + "}"
        word = f" [{word}]" if action.nargs == "?" else f" {word}"
    return ", ".join(f"`{option}{word}`" for option in action.option_strings)


def _help(action, with_default=True):
    """What an option means, in one line."""
    text = " ".join((action.help or "").split())
    text = text.replace("%(default)s", str(action.default)).replace("%%", "%")
    return text if with_default else re.sub(r" \(default: [^()]*\)$", "", text)


def _meaning(action):
    """The help of an option without its default; of those that `--help` hides, that of their declaration."""
    hidden = action.help == argparse.SUPPRESS
    return DECLARED[action.dest].metadata["help"] if hidden else _help(action, with_default=action.dest not in DECLARED)


def _sentence(text):
    text = " ".join((text or "").split()).rstrip(".")
    return _escaped(text[:1].upper() + text[1:] + ".")


def _linked(text):
    """Text with links to the pages that it names."""
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", text)


def _escaped(text):
    """Text that stays text on the page."""
    parts = re.split(r"(`[^`]*`)", text)
    plain = [re.sub(r"(?<!\*)\*(?!\*)|[_~]", r"\\\g<0>", part).replace("<", "&lt;") for part in parts[::2]]
    parts[::2] = plain
    return "".join(parts)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
