"""Every command of the documentation is accepted by the program: read by the parsers that read a user's.

Blocks of shell on all pages: `hpcgnn COMMAND`, `python -m partition_tools COMMAND`, and the words after `--` of a job
script, which are options of `hpcgnn train`. Values are read as well, and checked as a configuration is.
"""

import re
import shlex
from functools import cache

from pages import blocks

from hpcgnn.__main__ import build_parser
from hpcgnn.cli.arguments import given_options
from hpcgnn.config import make_config
from hpcgnn.errors import HpcgnnError
from hpcgnn.nn.registry import MODELS, register
from hpcgnn.plan.choices import registry_choices
from partition_tools.cli.main import build_parser as build_tools_parser

from .test_links import PAGES, READMES, of

TEXTS = [*PAGES, *READMES]
# Commands whose options after `--` are those of `hpcgnn train`.
WRAPPERS = re.compile(r"jobs/\w+\.(sh|sbatch)$")
ENDS = {"&&", "||", ";", "|", ">", "2>", "&", ")"}


def commands(text):
    """[words] of the commands in a page's blocks of shell."""
    found = []
    for block in blocks(text, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = []
            for word in [*shlex.split(line, comments=True), ";"]:
                if word in ENDS or word.endswith(";"):
                    found.append([*words, word.rstrip(";")] if word.rstrip(";") and word not in ENDS else words)
                    words = []
                else:
                    words.append(word)
    return [words for words in found if words]


def ours(words):
    """(parser's name, the words of a command that our parsers read), or None: variables of a shell have no value."""
    if any("$" in word for word in words):
        return None
    for place, word in enumerate(words):
        value = place and re.fullmatch("--[a-z-]+", words[place - 1])  # as in `compare.py --systems hpcgnn`
        if word == "hpcgnn" and not value:
            return "hpcgnn", words[place + 1 :]
        if word == "partition_tools" and words[place - 1] == "-m":
            return "partition_tools", words[place + 1 :]
    if any(map(WRAPPERS.search, words)) and "--" in words and not any("evaluate" in word for word in words):
        return "hpcgnn", ["train", *words[words.index("--") + 1 :]]
    return None


@cache
def choices():
    """Choices of the registries, with the plugin that pages have for an example."""
    known = registry_choices()
    if "edgeconv" not in MODELS:
        register("edgeconv")(type("EdgeConv", (), {}))
    return {**known, "models": {**known["models"], "edgeconv": None}}


def read(program, arguments):
    """Read arguments as the program does. Raises HpcgnnError, or SystemExit."""
    if program == "partition_tools":
        build_tools_parser().parse_args(arguments)
        return
    read = build_parser(choices()).parse_args(arguments)
    if read.command in ("train", "estimate", "import-weights"):
        given = given_options(read)
        if read.config is None and not given.get("resume"):
            make_config({"graph": "graph.h5", **given}, choices())


@of(TEXTS)
def test_commands_are_read_by_the_parsers(path, capsys):
    wrong = []
    for words in commands(path.read_text(encoding="utf-8")):
        if (found := ours(words)) is None:
            continue
        try:
            read(*found)
        except HpcgnnError as error:
            wrong.append(f"{shlex.join(words)}: {error}")
        except SystemExit as error:
            if error.code != 0:  # 0: --help, --version
                wrong.append(f"{shlex.join(words)}: {capsys.readouterr().err.strip().splitlines()[-1]}")
    assert not wrong
