"""The recipes for Spack, conda and Apptainer against setup.cfg: the tests have none of these tools."""

import ast
import configparser
import re
from pathlib import Path

import pytest

import hpcgnn

ROOT = Path(__file__).parents[2]
SPACK = ROOT / "env" / "spack" / "spack_repo" / "hpcgnn" / "packages"


def required(extra=None):
    """{name: least version} of the requirements of setup.cfg."""
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    lines = metadata["options.extras_require"][extra] if extra else metadata["options"]["install_requires"]
    return dict(re.findall(r"([\w-]+)>=([\d.]+)", lines))


def calls(path, name):
    """[(positional values, {keyword: value})] of the calls of a function in a file."""
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [
        (list(map(ast.literal_eval, node.args)), {word.arg: ast.literal_eval(word.value) for word in node.keywords})
        for node in found
        if isinstance(node.func, ast.Name) and node.func.id == name
    ]


def test_spack_asks_for_what_setup_cfg_asks_for():
    path = SPACK / "py_hpcgnn" / "package.py"
    asked = [(words[0], options) for words, options in calls(path, "depends_on")]
    at_run_time = [(spec, options.get("when")) for spec, options in asked if "run" in options.get("type", ())]
    for extra, when in ((None, None), ("plot", "+plot")):
        expected = {f"py-{name}@{least}:" for name, least in required(extra).items()}
        assert expected == {spec for spec, condition in at_run_time if condition == when} - {"python@3.11:"}
    assert [words for words, _ in calls(path, "version")] == [[hpcgnn.__version__]]


def test_conda_asks_for_what_setup_cfg_asks_for():
    recipe = pytest.importorskip("yaml").safe_load((ROOT / "env" / "conda" / "recipe.yaml").read_text())
    names = {"torch": "pytorch"}
    expected = {f"{names.get(name, name)} >={least}" for name, least in required().items()}
    assert set(recipe["requirements"]["run"]) == expected | {"python >=3.11"}
    assert recipe["package"] == {"name": "hpcgnn", "version": hpcgnn.__version__}
    assert recipe["build"]["python"]["entry_points"] == ["hpcgnn = hpcgnn.__main__:main"]


def test_the_container_is_made_of_files_that_exist():
    recipe = (ROOT / "env" / "hpcgnn.def").read_text()
    section = re.search(r"^%files\n(.*?)^%", recipe, re.M | re.S).group(1)
    pairs = [line.split() for line in section.splitlines() if line.strip()]
    assert all((ROOT / origin).exists() and target == f"/opt/hpcgnn/source/{origin}" for origin, target in pairs)
    # setup.py and setup.cfg read no other file of the checkout.
    needed = {"setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE", "hpcgnn", "partition_tools"}
    assert needed <= {origin for origin, _ in pairs}
