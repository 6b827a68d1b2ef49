"""The rooms of the package, held by reading its imports."""

import ast
import importlib
import pkgutil
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import hpcgnn

ROOT = Path(hpcgnn.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TOOLS = ROOT.parent / "partition_tools"
TOOL_FILES = sorted(TOOLS.rglob("*.py"))
# From the ground up. The floor of a room follows from its imports: one above the highest room that it imports from.
FLOORS = [
    ["cores", "errors", "exports", "likely_names", "memory", "option_fields", "registry", "traits", "word_list"],
    ["comm", "kernels", "options", "parser", "records", "terminal"],
    ["exchange", "fork_server", "graphfile", "interruption", "output_files", "suggestions"],
    ["config", "placement", "report"],
    ["graph", "outputs", "unused_options"],
    ["ops"],
    ["nn"],
    ["schedules", "tasks"],
    ["plan"],
    ["engine"],
    ["plugins"],
    ["app"],
    ["cli", "doctor", "interface"],
    ["__main__"],
]
# The same of partition_tools; a folder of `readers/` is a room of its own.
FLOORS_OF_TOOLS = [
    ["readers.sources", "workspace"],
    ["graph"],
    ["out_of_core", "readers.tables"],
    ["canonical", "generators"],
    ["partitioners", "readers.arrays"],
    ["readers.formats"],
    ["cli"],
    ["__main__", "interface"],
]
MAY_IMPORT = {
    "mpi4py": "comm/mpi.py comm/node_memory.py comm/start_mpi.py comm/run.py extras/oneccl/communicator.py".split(),
    "h5py": """graphfile/hdf5.py graphfile/narrow.py graphfile/storage.py engine/checkpoint.py
        extras/recipes/learned_features.py""".split(),
    "ctypes": """kernels/interface.py kernels/kernel.py kernels/library.py kernels/native.py memory/resident.py
        cores/__init__.py fork_server/server.py extras/offload/scratch.py extras/oneccl/communicator.py
        extras/oneccl/library.py extras/oneccl/start.py""".split(),
}
# What importing the package loads.
OF_THE_PACKAGE = {"typing", "hpcgnn.exports"}
# The doctor only asks for versions; launcher.py must decide how MPI starts before it is imported.
# oneCCL takes its settings from there; a fork server hands the whole of it on.
MAY_READ_ENVIRONMENT = """comm/launcher.py extras/oneccl/library.py fork_server/__init__.py fork_server/proxy.py
    fork_server/server.py kernels/library.py kernels/sources.py __main__.py doctor.py report/style.py""".split()


@cache
def nodes_of(path):
    """All nodes of a file's syntax tree, the module first."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def imports(path):
    """[(dotted name, whether at the top level of the module)] of all that a file imports, relative names resolved."""
    nodes, package = nodes_of(path), path.relative_to(ROOT.parent).parts[:-1]
    at_the_top, found = set(nodes[0].body), []
    for node in nodes:
        top = node in at_the_top
        if isinstance(node, ast.Import):
            found += [(alias.name, top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found += [(module if module != "hpcgnn" else f"hpcgnn.{alias.name}", top) for alias in node.names]
    return found


def room(name):
    """The room of a dotted name inside the package, or None."""
    parts = name.split(".")
    return parts[1] if parts[0] == "hpcgnn" and len(parts) > 1 and parts[1] != "__version__" else None


def rooms_below():
    """{room: other rooms that its files import from}: a room is a folder of the package, or a file at their level."""
    below = {}
    for path in FILES:
        parts = path.relative_to(ROOT).parts
        own = parts[0].removesuffix(".py")
        if own == "extras":  # above all rooms, and imported by none: see below
            continue
        if own == "__init__":  # names its modules, and loads one when it is asked for: tests/core/test_offering.py
            assert {name for name, top in imports(path) if top} <= OF_THE_PACKAGE, (
                "importing the package starts nothing"
            )
            continue
        below.setdefault(own, set()).update(room(name) for name, _ in imports(path) if room(name) not in (None, own))
    return below


def room_of_tools(parts):
    """The room of a module of partition_tools, by the parts of the module's name, or None for the package."""
    return ".".join(parts[1:3] if parts[1] == "readers" else parts[1:2]) if len(parts) > 1 else None


def tool_rooms_below():
    """{room of partition_tools: the other rooms of it that its files import from}."""
    below = {}
    for path in TOOL_FILES:
        own = room_of_tools(path.relative_to(TOOLS.parent).with_suffix("").parts)
        if own in ("__init__", "readers.__init__"):  # the first loads a module when a name of it is asked for
            assert {name for name, top in imports(path) if top} <= OF_THE_PACKAGE
            continue
        others = {room_of_tools(name.split(".")) for name, _ in imports(path) if name.startswith("partition_tools")}
        below.setdefault(own, set()).update(others - {None, own})
    return below


def floor_of(name, below, above=()):
    """The floor of a room, counted from 0."""
    assert name not in above, f"rooms import each other in a circle: {' -> '.join((*above, name))}"
    return 1 + max((floor_of(other, below, (*above, name)) for other in below[name]), default=-1)


@pytest.mark.parametrize("rooms, floors", [(rooms_below, FLOORS), (tool_rooms_below, FLOORS_OF_TOOLS)])
def test_imports_go_strictly_downwards(rooms, floors):
    below, found = rooms(), {}
    for name in sorted(below):
        found.setdefault(floor_of(name, below), []).append(name)
    assert [found[floor] for floor in sorted(found)] == floors


def test_the_core_does_not_know_its_extras():
    """No room imports the folder or a package of it; `load_extras` alone names the folder."""
    core = [path for path in FILES if path.relative_to(ROOT).parts[0] != "extras"]
    assert not [path for path in core if any(room(name) == "extras" for name, _ in imports(path))]
    named = [
        str(path.relative_to(ROOT))
        for path in core
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("hpcgnn.extras")
    ]
    assert set(named) == {"registry.py"}


def test_the_package_does_not_need_the_tools():
    """partition_tools imports hpcgnn; nothing of hpcgnn imports partition_tools, at its top or later, by a string."""
    for path in FILES:
        if path.relative_to(ROOT).parts[0] == "extras":  # formats, which partition_tools alone loads
            continue
        assert not [name for name, _ in imports(path) if name.split(".")[0] == "partition_tools"], path
        words = [
            node.value for node in nodes_of(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        assert not [word for word in words if re.fullmatch(r"partition_tools(\.\w+)+", word)], path


@pytest.mark.parametrize("library", MAY_IMPORT)
def test_only_these_import(library):
    users = {
        str(path.relative_to(ROOT)) for path in FILES if any(name.split(".")[0] == library for name, _ in imports(path))
    }
    assert users <= set(MAY_IMPORT[library])


def test_the_environment_is_read_in_few_places():
    users = set()
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "putenv"):
                users.add(str(path.relative_to(ROOT)))
    assert users == {name for name in MAY_READ_ENVIRONMENT if (ROOT / name).exists()}


def test_no_star_imports_and_no_long_files():
    for path in FILES + TOOL_FILES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path
        stars = [node for node in nodes_of(path) if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
        assert not stars, path


def test_class_names_stand_once():
    """In the package and its tools. Names of modules may stand twice in the core eight times, such as nn/model.py and
    options/model.py.
    """
    classes = [node.name for path in (*FILES, *TOOL_FILES) for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    assert {name for name, times in Counter(classes).items() if times > 1} == set()
    core = [path.stem for path in FILES if path.relative_to(ROOT).parts[0] != "extras" and path.stem != "__init__"]
    assert sum(times > 1 for times in Counter(core).values()) <= 8


def test_the_trainer_is_small():
    assert len((ROOT / "engine/trainer.py").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_module_says_why_it_exists():
    for path in FILES + TOOL_FILES:
        assert not path.read_text(encoding="utf-8").strip() or ast.get_docstring(nodes_of(path)[0]), path


@pytest.mark.parametrize(
    "files, without",
    [
        (list((ROOT / "report").glob("*.py")), ("torch", "mpi4py", "h5py")),
        (TOOL_FILES, ("torch", "mpi4py", "h5py", "hpcgnn.comm", "hpcgnn.engine", "hpcgnn.app")),
    ],
    ids=["reports", "tools"],
)
def test_what_is_not_needed(files, without):
    for path in files:
        assert not [name for name, _ in imports(path) if name.startswith(without)], path


def test_scripts_of_jobs_import_names_that_exist():
    """Most run in the slow lane alone, or on nobody's machine for weeks."""
    absent = []
    for path in sorted((ROOT.parent / "jobs").rglob("*.py")):
        older = {id(name) for node in nodes_of(path) if isinstance(node, ast.Try) for name in ast.walk(node)}
        for node in nodes_of(path):
            if not isinstance(node, ast.ImportFrom) or id(node) in older or node.level:
                continue
            if node.module.split(".")[0] in ("hpcgnn", "partition_tools"):
                module, where = importlib.import_module(node.module), f"{path.relative_to(ROOT.parent)}:{node.lineno}"
                names = {*dir(module), *(each.name for each in pkgutil.iter_modules(getattr(module, "__path__", ())))}
                absent += [f"{where}: {alias.name}" for alias in node.names if alias.name not in names]
    assert not absent
