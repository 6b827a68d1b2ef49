"""Modules from one file are those of an ordinary import, and a file that is not true any more is not believed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITE = """
import sys
from pathlib import Path
import pack, pack.part, pack.sub.deep
from hpcgnn import bytecode
bytecode.write(Path(sys.argv[1]))
"""
READ = """
import sys
from pathlib import Path
from hpcgnn import bytecode
print(bytecode.serve(Path(sys.argv[1])), bytecode.serve(Path(sys.argv[1])))
import pack, pack.part, pack.sub.deep
for module in (pack, pack.part, pack.sub.deep):
    print(type(module.__spec__.loader).__name__, module.__name__, module.__package__, end=" ")
    print(Path(module.__file__).name, end=" ")
    print(getattr(module, "__path__", None) == [str(Path(module.__file__).parent)], module.VALUE)
import inspect
print(inspect.getsource(pack.part.raises).strip().replace("\\n", ""))
try:
    pack.part.raises()
except KeyError as error:
    print(Path(error.__traceback__.tb_next.tb_frame.f_code.co_filename).name)
"""


@pytest.fixture
def folder(tmp_path):
    """A package, and the file that it is read from."""
    for name, text in {
        "pack/__init__.py": "VALUE = 1",
        "pack/part.py": "VALUE = 2\ndef raises(): raise KeyError\n",
        "pack/sub/__init__.py": "",
        "pack/sub/deep.py": "from .. import VALUE as ABOVE\nVALUE = ABOVE + 2",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    start(WRITE, tmp_path)
    return tmp_path


def start(program, folder):
    """The lines that a program says, to which the package and the file of a folder are known."""
    done = subprocess.run(
        [sys.executable, "-c", program, folder / "code.bin"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
    )
    return done.stdout.splitlines()


def read(folder):
    return start(READ, folder)


def test_modules_are_as_of_an_ordinary_import(folder):
    found = read(folder)
    assert found == [
        "True True",
        "_Loader pack pack __init__.py True 1",
        "_Loader pack.part pack part.py False 2",
        "_Loader pack.sub.deep pack.sub deep.py False 3",
        "def raises(): raise KeyError",
        "part.py",
    ]
    (folder / "code.bin").unlink()
    assert [line.replace("SourceFileLoader", "_Loader") for line in read(folder)[1:]] == found[1:]


def test_a_module_that_has_changed_is_read_anew(folder):
    about = os.stat(folder / "pack/part.py")
    (folder / "pack/part.py").write_text("VALUE = 5\ndef raises(): raise KeyError\n")
    # By seconds, for Python's own compiled files know no less.
    os.utime(folder / "pack/part.py", ns=(about.st_atime_ns, about.st_mtime_ns + 2 * 10**9))
    assert read(folder)[1:3] == [
        "_Loader pack pack __init__.py True 1",
        "SourceFileLoader pack.part pack part.py False 5",
    ]


def test_a_package_of_another_folder_is_not_mistaken_for_it(folder, tmp_path_factory):
    """As where PYTHONPATH names another checkout: a submodule is looked for where its package was found."""
    other = tmp_path_factory.mktemp("other")
    (folder / "pack").rename(other / "pack")
    (other / "code.bin").symlink_to(folder / "code.bin")
    found = read(other)
    assert found[0] == "False False" and [line.split()[0] for line in found[1:4]] == ["SourceFileLoader"] * 3


def test_a_rank_opens_far_fewer_files(tmp_path):
    """Counted at the end of what a training imports: modules by their loaders."""
    program = """
import sys
from pathlib import Path
from hpcgnn import bytecode
from hpcgnn.__main__ import load, set_process_policies
if sys.argv[2] == "write":
    set_process_policies(from_one_file=False)
    load([])
    bytecode.write(Path(sys.argv[1]))
else:
    assert bytecode.serve(Path(sys.argv[1]))
    load([])
    import torch
    assert torch.ones(2).sum() == 2 and "torch._meta_registrations" not in sys.modules
kinds = [type(getattr(module.__spec__, "loader", None)).__name__ for module in list(sys.modules.values())
         if getattr(module, "__spec__", None)]
print(kinds.count("SourceFileLoader"), kinds.count("_Loader"))
"""
    counts = []
    for what in ("write", "read"):
        done = subprocess.run(
            [sys.executable, "-c", program, tmp_path / "code.bin", what], check=True, capture_output=True, text=True
        )
        counts.append([int(word) for word in done.stdout.split()])
    (ordinary, none), (left, served) = counts
    assert none == 0 and served > 900 and left < ordinary / 3, counts


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"another Python's"], ids=["empty", "zeros", "other"])
def test_a_file_that_is_none_is_left_alone(folder, damage):
    (folder / "code.bin").write_bytes(damage)
    assert read(folder)[:2] == ["False False", "SourceFileLoader pack pack __init__.py True 1"]
