"""Mistakes, found on the login node: one line with the remedy, code 2, no job submitted, nothing left behind."""

import json

import pytest
from slurm_helpers import ROOT, call

TRAIN = "bash jobs/train.sbatch --dry-run"
# name: (command, words of the line); {graph} has maps for 1, 2 and 4 ranks, {full} is a full file system
CASES = {
    "unknown site": (TRAIN + " --site nowhere --graph {graph} --run-dir r", "expected one of archer2, "),
    "no such partition": (TRAIN + ' --sbatch "--partition=none" --graph {graph} --run-dir r', "nvalid partition"),
    "more nodes than there are": (TRAIN + ' --sbatch "--nodes=9" --graph {graph} --run-dir r', "not available"),
    "zero tasks": (TRAIN + ' --sbatch "--ntasks=0" --graph {graph} --run-dir r', '"0" for --ntasks'),
    "no map": (TRAIN + ' --sbatch "--nodes=2 --ntasks=3" --graph {graph} --run-dir r -- --partition auto', "--ranks 3"),
    "a typing error": (TRAIN + " --graph {graph} --run-dir r -- --hiden 8", "expected --hidden"),
    "full file system": (TRAIN + " --graph {graph} --run-dir {full}/r", "No space left"),
    "an option without a value": (TRAIN + " --graph", "--graph needs a value"),
    "outside a job": ("bash jobs/train.sbatch --graph {graph} --run-dir r", "submit it with sbatch"),
    "nothing to evaluate": (
        "bash jobs/evaluate.sbatch --dry-run --run-dir r --graph {graph}",
        "not the directory of a run",
    ),
    "nothing to partition": ("bash jobs/partition.sbatch --dry-run --graph r.h5 --ranks 2", "--import or --generate"),
    "a list that is none": ("bash jobs/partition.sbatch --dry-run --graph {graph} --ranks 2;4", "1,2,4,8"),
    "weak: an option of the generator": (
        "bash jobs/weak_scaling.sh --out o --ranks 1 --nodes-per-rank 100 --generate 'planted --degre 3'",
        "--generate",
    ),
    "schedules: a variant that is none": (
        "bash jobs/schedules.sh --graph {graph} --out o --ranks 1 --only sar,lasy",
        "expected some of sar,sar-bf16,sar-int8,lazy,",
    ),
    "memory: no graph": ("bash jobs/memory_profile.sh --out o", "--graph is required"),
}


@pytest.fixture(scope="module")
def places(graph, tmp_path_factory):
    """Names for {…} in the commands. A full file system is a small one in memory, filled."""
    full = tmp_path_factory.mktemp("full")
    if call(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", full]).returncode:
        pytest.skip("NO FULL FILE SYSTEM HERE: mounting one needs root")
    (full / "filler").write_bytes(bytes(12 << 10))
    yield {"graph": graph, "full": full}
    call(["umount", full])


@pytest.mark.parametrize("case", CASES)
def test_a_mistake(cluster, forking, places, case):
    command, words = CASES[case]
    before, jobs = {path.name for path in cluster.home.iterdir()}, cluster.jobs()
    done = cluster.run(command.replace("2;4", "'2;4'").format(**places), check=False, PATH=forking)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(lines) == 1 and " error: " in lines[0] and words in lines[0], done.stderr
    assert {path.name for path in cluster.home.iterdir()} == before and cluster.jobs() == jobs
    assert [path.name for path in places["full"].iterdir()] == ["filler"]


def test_no_sbatch_here(cluster, graph, tmp_path):
    """A laptop, on which nothing of SLURM is installed."""
    for name in ("bash", "dirname", "basename", "sed", "head", "tail", "tr", "python"):
        (tmp_path / name).symlink_to(call(["bash", "-c", f"command -v {name}"]).stdout.strip())
    command = (
        f"PATH={tmp_path} SITE_RANKS_PER_NODE=1 bash {ROOT}/jobs/train.sbatch --dry-run --graph {graph} --run-dir r"
    )
    done = cluster.run(command, check=False)
    assert done.returncode == 2 and "no sbatch here" in done.stderr, done.stderr


def test_a_dry_run_prints_what_the_site_exports(cluster, graph, forking, tmp_path):
    """sbatch does not read the site file."""
    (tmp_path / "site.sh").write_text("export SBATCH_PARTITION=main SBATCH_MEM_PER_NODE=1G\n")
    done = cluster.run(f"{TRAIN} --site {tmp_path}/site.sh --graph {graph} --run-dir r", PATH=forking)
    assert "submit it: SBATCH_MEM_PER_NODE=1G SBATCH_PARTITION=main sbatch " in done.stdout


def test_srun_with_the_wrong_pmi_is_explained(cluster, graph):
    """Every process then believes to be rank 0 of 1, and N jobs would write the same files."""
    command = f"srun --mpi=none --ntasks=2 python -P -m hpcgnn train --graph {graph} --run-dir r"
    done = cluster.run(command, check=False)
    assert done.returncode == 2 and "SLURM_STEP_NUM_TASKS=2" in done.stderr and "do not match" in done.stderr
    assert not (cluster.home / "r").exists()


@pytest.mark.parametrize(
    "line, killed",
    [
        ("srun: error: n07: task 3: Killed", "rank 3 on node n07 was killed"),
        ("srun: error: n07: tasks 2-3: Out Of Memory", "rank 2-3 on node n07 was killed"),
        ("hpcgnn: rank 1 (n8, last at 'load') of 4 has ended without finishing (…", "rank 1 on node n8 was killed"),
        ("srun: error: n07: task 3: Terminated", ""),
    ],
)
def test_the_rank_that_was_killed_is_named(tmp_path, line, killed):
    """Of this launch, and not of the one before."""
    before = "srun: error: n1: task 0: Killed\n"
    (tmp_path / "out").write_text(f"{before}{line}\nsrun: error: n1: task 1: Terminated\n")
    found = call(f". jobs/lib/job.sh; output={tmp_path}/out said_before={len(before)}; killed_rank").stdout
    assert found.startswith(killed) and bool(found) == bool(killed)


@pytest.mark.slow
def test_mpiexec_inside_the_allocation(cluster, graph):
    """Where SLURM does not speak the PMI of the MPI library. Both nodes get their share of the ranks."""
    site = cluster.home / "site.sh"
    site.write_text((ROOT / "jobs" / "sites" / "plain.sh").read_text() + "SITE_LAUNCHER=mpiexec\n")
    options = f"jobs/train.sbatch --site {site} --graph {graph} --run-dir m -- --hidden 8 --epochs 2"
    job = cluster.submit(f"--nodes=2 --ntasks-per-node=1 --output=m.txt {options}")
    assert cluster.wait(job)[job] == "COMPLETED", (cluster.home / "m.txt").read_text()
    assert "mpiexec -ppn 1 -n 2" in (cluster.home / "m.txt").read_text()
    assert json.loads((cluster.home / "m" / "summary.json").read_text())["ranks"] == 2


@pytest.mark.slow
def test_a_study_survives_a_failed_point_and_fills_what_is_missing(cluster, graph):
    """The directory of one point is occupied by a file: its job fails, the other runs and the report come all the
    same.
    """
    out = cluster.home / "study"
    out.mkdir()
    (out / "sar-p2-r1").write_text("in the way")
    options = f"--graph {graph} --out study --ranks 1,2 --repeat 1 -- --hidden 8 --epochs 2"
    command = f"bash jobs/strong_scaling.sh {options}"
    cluster.run("scontrol update PartitionName=main State=DOWN")  # no job ends before the second try
    try:
        cluster.run(command)
        refused = cluster.run(command, check=False)
    finally:
        cluster.run("scontrol update PartitionName=main State=UP")
    assert refused.returncode == 2 and "still in the queue" in refused.stderr
    cluster.wait()
    assert (out / "sar-p1-r1" / "summary.json").exists()
    first = (out / "sar-p1-r1" / "summary.json").stat().st_mtime_ns
    assert "cannot write study/sar-p2-r1" in "".join(path.read_text() for path in (out / "log").glob("*_*.txt"))
    (out / "sar-p2-r1").unlink()
    assert "2 runs in study, 1 complete, 1 to do" in cluster.run(command).stdout
    cluster.wait()
    assert (out / "sar-p2-r1" / "summary.json").exists()
    assert (out / "sar-p1-r1" / "summary.json").stat().st_mtime_ns == first, "what was complete is not repeated"
