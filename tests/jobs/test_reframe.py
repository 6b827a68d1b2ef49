"""The suite of performance regressions: the checks that need no cluster, and where ReFrame is installed its list."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "jobs" / "reframe"
REFERENCES = tomllib.loads((SUITE / "references.toml").read_text(encoding="utf-8"))
TESTS = {"Training": {"1", "2", "4"}}
SITES = sorted((SUITE / "sites").glob("*.py"))


def call(*command, **environment):
    return subprocess.run(
        list(map(str, command)), env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("site", SITES, ids=lambda path: path.stem)
def test_sites(site):
    settings = runpy.run_path(str(site))["site_configuration"]
    environments = {one["name"] for one in settings["environments"]}
    for system in settings["systems"]:
        for partition in system["partitions"]:
            assert partition["extras"].keys() == {"ranks_per_node", "threads"}
            assert environments >= set(partition["environs"]) == {"hpcgnn"}


def report(path, seconds, result="pass"):
    values = {
        "local:main:epoch_seconds": [seconds, 0, None, None, "s", result],
        "local:main:sent": [114596416, 0, 0, 0, "B", ""],
    }
    case = {"system": "local", "name": "Training %ranks=2", "num_tasks": 2, "result": result, "perfvalues": values}
    path.write_text(json.dumps({"runs": [{"testcases": [case]}]}))
    return path


def test_references_are_renewed_from_reports(tmp_path):
    reports = [report(tmp_path / f"{n}.json", seconds) for n, seconds in enumerate((0.5, 0.1, 0.2, 0.6))]
    done = call(sys.executable, SUITE / "renew.py", *reports)
    assert tomllib.loads(done.stdout) == {"local": {"Training": {"2": {"epoch_seconds": 0.2, "sent": 114596416}}}}


def test_failures_are_no_references(tmp_path):
    done = call(sys.executable, SUITE / "renew.py", report(tmp_path / "r.json", 1.0, "fail"))
    assert done.returncode == 2 and "Training %ranks=2 has not passed" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    "words, said",
    [
        (["--site", "nowhere"], "no site 'nowhere'"),
        ([], "no reframe in this environment"),
    ],
)
def test_mistakes_are_one_line(words, said, tmp_path):
    done = call("/bin/bash", SUITE / "run.sh", *words, "--out", tmp_path / "o", PATH="/usr/bin:/bin")
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("site", SITES, ids=lambda path: path.stem)
def test_the_suite_loads_and_lists_its_tests(site, tmp_path):
    bin_folder = Path(sys.executable).parent
    if shutil.which("reframe", path=str(bin_folder)) is None:
        pytest.skip("ReFrame is not installed (pip install -c env/constraints.txt '.[reframe]')")
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    done = call("bash", SUITE / "run.sh", "-l", "--site", site, "--out", tmp_path, PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = re.findall(r"^- (\w+)(?: %ranks=(\d+))?", done.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(
        (test, ranks if test != "Gather" else "") for test in TESTS for ranks in TESTS[test]
    )
