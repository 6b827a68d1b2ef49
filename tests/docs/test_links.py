"""Names in the documentation exist: pages and headings that are linked to, files, commands and their options."""

import argparse
import ast
import re
import unicodedata
from functools import cache
from pathlib import Path

import pytest

from hpcgnn.__main__ import build_parser
from hpcgnn.nn.registry import MODELS
from hpcgnn.plan.choices import registry_choices
from hpcgnn.schedules.schedule_registry import SCHEDULES
from partition_tools.cli.main import build_parser as build_tools_parser

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site" / "mkdocs.yml"
PAGES = sorted((ROOT / "docs").glob("*.md"))
READMES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("[a-z]*/README.md")),
    *sorted(ROOT.glob("[a-z]*/*/README.md")),
]
TEXTS = [*PAGES, *READMES]
FOLDERS = ("hpcgnn", "partition_tools", "jobs", "env", "tests", "docs")
# What a page may name as an example of something that is not here.
EXAMPLES = {"jobs/sites/mine.sh", "jobs/SCRIPT", "tests/kernels/test_name.py", "tests/kernels/test_NAME.py"}
EXAMPLES |= {"hpcgnn/nn/graphconv.py", "partition_tools/readers/formats/adjlist.py"}  # of CONTRIBUTING.md

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="there is no documentation beside the tests")


def of(texts):
    return pytest.mark.parametrize("path", texts, ids=lambda path: str(path.relative_to(ROOT)))


def prose(text):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(text):
    """The targets of a page's links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(text)))


@cache
def anchors(path):
    """The anchors that the site and GitHub give to a page's headings, as far as both agree."""
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", prose(path.read_text(encoding="utf-8")), re.MULTILINE):
        plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return found


@of(TEXTS)
def test_links_lead_somewhere(path):
    dead = []
    for link in links(path.read_text(encoding="utf-8")):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or anchor and anchor not in anchors(target):
            dead.append(link)
    assert not dead


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"[\w-]+\.md", SITE.read_text(encoding="utf-8").split("\nnav:")[1]))
    assert named == {path.name for path in PAGES}


@of(TEXTS)
def test_files_that_are_named_exist(path):
    """`jobs/train.sbatch`, `hpcgnn/ops/linear_aggregation.py`, `tests/mpi`: whatever begins like a folder of ours."""
    text = path.read_text(encoding="utf-8")
    names = re.findall(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w/.-]*\w/?)(?![\w*{{[])", text)
    dead = sorted({name for name in names if not (ROOT / name).exists() and name not in EXAMPLES})
    assert not dead


@cache
def our_options():
    """Every option that a program or a script of ours takes."""
    scripts = [path for kind in ("*.sh", "*.sbatch", "*.py") for path in (ROOT / "jobs").rglob(kind)]
    scripts += [*(ROOT / "tests").rglob("*.py"), *(ROOT / "env").glob("*.sh"), *(ROOT / "docs").glob("*.py")]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in scripts)
    of_scripts = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", texts))
    return of_scripts | flags_of(build_parser(registry_choices())) | flags_of(build_tools_parser())


def flags_of(parser):
    """The flags of a parser, and of the commands below it."""
    found = {flag for action in parser._actions for flag in action.option_strings}
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found.union(*(flags_of(command) for action in below for command in action.choices.values()))


@of(TEXTS)
def test_options_that_are_named_exist(path):
    # Of sbatch, srun, pytest and coverage; and the one that an error explains as --lr.
    known = {"--mpi", "--signal", "--ntasks-per-node", "--deselect", "--durations", "--rcfile", "--learning-rate"}
    known |= {"--no-deps", "--no-build-isolation", "--inplace", "--param"}  # of pip, setup.py, gcc
    # Of pip, srun, Score-P's bindings and darshan-parser.
    known |= {"--force-reinstall", "--no-binary", "--export", "--mpp", "--thread", "--noinstrumenter", "--total"}
    known |= {"--pty", "--shm-size", "--no-checksum", "--prefix"}  # of srun, docker, Spack, git
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", path.read_text(encoding="utf-8")))
    assert not sorted(named - known - our_options())


def test_models_and_schedules_have_their_rows():
    for page, names in (("models.md", MODELS), ("schedules.md", SCHEDULES)):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert not [name for name in names if f"| `{name}" not in text and name != "edgeconv"], page


@pytest.mark.parametrize(
    "name, heading", [("FLOORS", "| floor | rooms |"), ("FLOORS_OF_TOOLS", "| floor | rooms of `partition_tools/` |")]
)
def test_the_tables_of_rooms_are_those_of_the_packages(name, heading):
    """The floors that tests/core/test_architecture.py holds the imports to."""
    source = (ROOT / "tests" / "core" / "test_architecture.py").read_text(encoding="utf-8")
    floors = ast.literal_eval(re.search(rf"^{name} = (\[.*?^\])", source, re.DOTALL | re.MULTILINE)[1])
    shown = {}
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    for line in page.partition(f"\n{heading}\n")[2].partition("\n\n")[0].splitlines():
        if row := re.match(r"\| (\d+) \|([^|]*)\|", line):
            shown[int(row[1])] = {name.rstrip("/") for name in re.findall(r"`([\w/]+)`", row[2])}
    assert shown == {floor: {room.replace(".", "/") for room in rooms} for floor, rooms in enumerate(floors)}
