"""The rooms of the package, held by reading its imports."""

import ast
from pathlib import Path

import pytest

import hpcgnn

ROOT = Path(hpcgnn.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# Rooms import strictly lower ones. `report` reads files only, and is below `train`, which draws the picture of its run.
LEVELS = {
    "declaring": -1,
    "errors": 0,
    "options": 0,
    "resident": 0,
    "suggestions": 0,
    "effects": 1,
    "records": 1,
    "config": 1,
    "comm": 2,
    "kernels": 2,
    "graph": 3,
    "ops": 4,
    "nn": 5,
    "schedules": 6,
    "report": 7,
    "plan": 7,
    "train": 8,
    "arguments": 9,
    "doctor": 9,
    "__main__": 10,
}
MAY_IMPORT = {
    "mpi4py": {"comm/mpi.py", "comm/launch.py", "comm/ending.py", "doctor.py"},
    "h5py": {"graph/attributes.py", "graph/storage.py", "graph/writing.py", "train/checkpoint.py", "doctor.py"},
    "ctypes": {"kernels/interface.py", "kernels/library.py", "kernels/native.py", "train/memory.py"},
}
# The doctor only asks for versions; launch.py must decide how MPI starts before it is imported.
MAY_READ_ENVIRONMENT = {"comm/launch.py", "kernels/library.py", "__main__.py", "train/rundir.py", "doctor.py"}
IDS = [str(path.relative_to(ROOT)) for path in FILES]


def imports(path):
    """[(dotted name, whether at the top level of the module)] of all that a file imports, relative names resolved."""
    tree, package = ast.parse(path.read_text(encoding="utf-8")), ("hpcgnn", *path.relative_to(ROOT).parts[:-1])
    found = []
    for node in ast.walk(tree):
        top = node in tree.body
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


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_imports_go_strictly_downwards(path):
    parts = path.relative_to(ROOT).parts
    own = parts[0].removesuffix(".py")
    if own == "__init__":
        assert not imports(path), "importing the package starts nothing"
        return
    for name, _ in imports(path):
        other = room(name)
        if other is not None and not (other == own and len(parts) > 1):
            assert LEVELS[other] < LEVELS[own], f"{own} must not import {name}"


@pytest.mark.parametrize("library", MAY_IMPORT)
def test_only_these_import(library):
    users = {
        str(path.relative_to(ROOT)) for path in FILES if any(name.split(".")[0] == library for name, _ in imports(path))
    }
    assert users <= MAY_IMPORT[library]


def test_mpi_is_not_loaded_by_importing():
    """launch.py imports mpi4py inside functions, after the settings that decide how MPI starts."""
    assert [str(path.relative_to(ROOT)) for path in FILES if ("mpi4py", True) in imports(path)] == ["comm/mpi.py"]
    users = {str(path.relative_to(ROOT)) for path in FILES if ("hpcgnn.comm.mpi", True) in imports(path)}
    assert not users


def test_the_environment_is_read_in_few_places():
    users = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "putenv"):
                users.add(str(path.relative_to(ROOT)))
    assert users == MAY_READ_ENVIRONMENT


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_no_star_imports_and_no_long_files(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert not [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_every_module_says_why_it_exists(path):
    text = path.read_text(encoding="utf-8")
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def test_reports_need_neither_torch_nor_mpi():
    for path in (ROOT / "report").glob("*.py"):
        assert not {name.split(".")[0] for name, _ in imports(path)} & {"torch", "mpi4py", "h5py"}


def test_the_tools_need_no_mpi():
    tools = ROOT.parent / "partition_tools"
    for path in tools.rglob("*.py"):
        names = [
            n.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import) for n in node.names
        ]
        names += [
            node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        assert not [
            name for name in names if name.split(".")[0] == "mpi4py" or name.startswith(("hpcgnn.comm", "hpcgnn.train"))
        ], path
