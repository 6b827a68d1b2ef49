"""The page of named machines and their site files agree, and the files can be sourced."""

import re
import subprocess

import pytest

from .test_figures import table
from .test_links import ROOT

PAGE = ROOT / "docs" / "machines.md"
SITES = ROOT / "jobs" / "sites"
EXAMPLES = {"plain", "cray-ex", "intel-infiniband", "openmpi-ucx"}
# What a login node has and this machine has not: `module`, and variables that modules set.
SOURCE = """set -eu; module() { :; }; CRAY_LD_LIBRARY_PATH= MPICH_DIR=/mpich I_MPI_ROOT=/impi EBROOTPSMPI=/psmpi
set +u; . "$1"; echo "${SITE_CPUS_PER_NODE:-}|${SITE_RANKS_PER_NODE:-}|${SBATCH_PARTITION:-}"
type deactivate > /dev/null"""

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="there is no documentation beside the tests")


def rows():
    """{site: [machine, cores, ranks, partition]}"""
    cells = [[cell.strip("`") for cell in row] for row in table(PAGE, "| site file |")] if PAGE.exists() else []
    return {row[1]: [row[0], *row[2:]] for row in cells if "fugaku" not in row[1]}


def test_every_site_has_a_row_and_every_machine_an_address():
    assert set(rows()) == {path.stem for path in SITES.glob("*.sh")} - EXAMPLES
    names = [row[0] for row in table(PAGE, "| site file |")]
    assert len(names) == 12
    assert names == [row[0] for row in table(PAGE, "| memory of a node |")]
    assert names == [row[0] for row in table(PAGE, "| address |")]


@pytest.mark.parametrize("site", rows())
def test_a_site_sets_what_its_row_has(site, tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").write_text("deactivate() { :; }\n")
    variables = {"project": str(tmp_path), "jobs": str(ROOT / "jobs"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", SOURCE, "bash", SITES / f"{site}.sh"], env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    machine, cores, ranks, partition = rows()[site]
    assert done.stdout.strip() == f"{cores}|{ranks}|{partition}"
    assert not ranks or int(cores) % int(ranks) == 0
    text = (SITES / f"{site}.sh").read_text()
    (address,) = re.findall(r"https://\S+", text)
    (documented,) = (row[1] for row in table(PAGE, "| address |") if row[0] == machine)
    assert "not run there" in text and documented == f"<{address}>"
