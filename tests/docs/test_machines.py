"""The page of named machines and their site files agree: what a file leaves in a shell that sources it."""

import re
import subprocess

import pytest

from .test_figures import table
from .test_links import ROOT

PAGE = ROOT / "docs" / "machines.md"
SITES = ROOT / "jobs" / "sites"
# {file of no machine: modules and launcher}
EXAMPLES = {
    "plain": "|",
    "cray-ex": "PrgEnv-gnu cray-mpich-abi|srun --mpi=cray_shasta",
    "intel-infiniband": "gcc intel-mpi|srun --mpi=pmi2",
    "openmpi-ucx": "gcc openmpi|srun --mpi=pmix",
}
# What a login node has and this machine has not: `module`, and variables that modules set. A launcher tells its words.
SOURCE = """set -eu; CRAY_LD_LIBRARY_PATH= MPICH_DIR=/mpich I_MPI_ROOT=/impi EBROOTPSMPI=/psmpi loaded=" "
module() {
    case $1 in
        purge) loaded=" " ;;
        load) shift; loaded+="$* " ;;
        swap) loaded="${loaded/ $2 / }$3 " ;;
        *) return 1 ;;
    esac
}
set +u; . "$1"; type deactivate > /dev/null
case ${SITE_LAUNCHER:-} in srun* | "") launcher=${SITE_LAUNCHER:-} ;; *) launcher=$($SITE_LAUNCHER -n 2) ;; esac
echo "${SITE_CPUS_PER_NODE:-}|${SITE_RANKS_PER_NODE:-}|${SBATCH_PARTITION:-}|$(echo $loaded)|$launcher"
env | sort"""
HEADINGS = ("| site file |", "| memory of a node |", "| address |")
# The variables of a network's libraries, by the first word of its cell in the page.
NETWORKS = {"Slingshot": "MPICH_OFI|FI_CXI", "first": "MPICH_OFI", "InfiniBand": "I_MPI|OMPI|UCX", "EFA": "FI_PROVIDER"}

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="there is no documentation beside the tests")


def rows():
    """{site: [machine, and the other cells of its rows in all tables]}"""
    tables = [{row[0]: row[1:] for row in table(PAGE, each)} for each in HEADINGS] if PAGE.exists() else [{}]
    assert all([*each] == [*tables[0]] for each in tables)
    joined = ([name, *(cell.strip("`<>") for each in tables for cell in each[name])] for name in tables[0])
    return {row[1]: [row[0], *row[2:]] for row in joined if "fugaku" not in row[1]}


@pytest.fixture
def left(tmp_path):
    """left(site): what sourcing its file leaves: settings, modules and launcher in a line, then exported variables."""
    (tmp_path / ".venv").symlink_to(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").write_text("deactivate() { :; }\n")
    (tmp_path / "bin/ibrun").write_text("#!/bin/sh\necho ibrun $*\n")
    (tmp_path / "bin/ibrun").chmod(0o755)
    variables = {"project": str(tmp_path), "jobs": str(ROOT / "jobs"), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}

    def source(site):
        command = ["bash", "-c", SOURCE, "bash", SITES / f"{site}.sh"]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return done.stdout.splitlines()

    return source


def test_every_site_has_its_rows():
    assert set(rows()) == {path.stem for path in SITES.glob("*.sh")} - set(EXAMPLES) and len(rows()) == 11


@pytest.mark.parametrize("site", EXAMPLES)
def test_an_example_leaves_its_modules_and_launcher(site, left):
    assert left(site)[0].endswith("|" + EXAMPLES[site])


@pytest.mark.parametrize("site", rows())
def test_a_site_leaves_what_its_rows_have(site, left):
    _, cores, ranks, partition, modules, launcher, _, network, _, address, read, unread = rows()[site]
    line, *exported = left(site)
    assert line == "|".join([cores, ranks, partition, modules, launcher])
    assert not ranks or int(cores) % int(ranks) == 0 and int(cores) // int(ranks) <= 18
    fabric = [line for line in exported if re.match("FI_|UCX_|PSM|OMPI_|I_MPI_|MPICH_", line)]
    assert all(re.match(NETWORKS[network.replace(",", " ").split()[0]], line) for line in fabric), fabric
    text, page = (SITES / f"{site}.sh").read_text(), PAGE.read_text(encoding="utf-8")
    assert "not run there" in text and re.findall(r"https://\S+", text) == [address] and (read or unread == "all")
    typed = " ".join([*(line for line in exported if line.startswith("SBATCH_")), "sbatch --nodes=4 jobs/train.sbatch"])
    assert f"\n{typed} --site {site} " in page or f"train.sbatch --site {site} " not in page
