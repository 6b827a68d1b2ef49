"""The environment of a job is sent to its node, runs from there, and is gone afterwards; large files on Lustre."""

import json
import subprocess
import sys
import sysconfig

import pytest
from slurm_helpers import ROOT, call


@pytest.fixture
def site(tmp_path):
    """A small environment, whose torch is that of the tests, and a site that has it sent to a folder."""
    prefix, stage = tmp_path / "environment", tmp_path / "node"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    packages = sysconfig.get_paths(vars={"base": str(prefix), "platbase": str(prefix)})["purelib"]
    (tmp_path / "environment" / packages / "torch.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    stage.mkdir()
    path = tmp_path / "site.sh"
    path.write_text(f'PATH={prefix}/bin:$PATH\nSITE_STAGE={stage}\nSITE_LAUNCHER="srun --mpi=none"\n')
    return path


def test_a_job_runs_from_the_disk_of_its_node(cluster, graph, site):
    stage = site.parent / "node"
    options = f"--site {site} --graph {graph} --run-dir staged -- --comm torch --hidden 8 --epochs 2"
    job = cluster.submit(f"--nodes=1 --ntasks=2 jobs/train.sbatch {options}")
    cluster.wait(job)
    said = (cluster.home / f"slurm-{job}.out").read_text()
    summary = json.loads((cluster.home / "staged/summary.json").read_text())
    assert summary["kernels"]["file"].startswith(f"{stage}/hpcgnn-{job}-"), said
    assert f"runs from {stage}/hpcgnn-{job}-" in said and "no file of code" not in said
    assert list(stage.iterdir()) == [], "nothing stays"


def test_nobody_can_foretell_the_folder_or_write_to_it(tmp_path):
    """`tar` stands in for the rest of the work."""
    stage, libraries = tmp_path / "shared", f". {ROOT}/jobs/lib/common.sh; . {ROOT}/jobs/lib/job.sh"
    stand_ins = 'for_each_node() { "$@"; }; tar() { stat -c "%a %n" "$staged"; trap - EXIT; exit; }'
    command = f"{libraries}; {stand_ins}; SITE_STAGE={stage} SLURM_JOB_ID=7; stage_environment"
    first, second = (call(command).stdout.split() for _ in range(2))
    assert first[0] == "700" and first[1] != second[1] and [str(path) for path in stage.iterdir()] == second[1:]


def test_a_folder_that_is_not_there_is_a_mistake_of_the_site(cluster, graph, site):
    site.write_text(site.read_text() + "SITE_STAGE=/proc/nowhere\n")
    job = cluster.submit(f"--nodes=1 --ntasks=1 jobs/train.sbatch --site {site} --graph {graph} --run-dir unstaged")
    cluster.wait(job)
    said = (cluster.home / f"slurm-{job}.out").read_text()
    assert "SITE_STAGE in" in said and "got /proc/nowhere" in said, said


@pytest.mark.parametrize("lustre", [True, False])
def test_files_are_made_in_a_folder_of_many_servers(tmp_path, lustre):
    """`lfs` stands in for that of a Lustre file system, which no machine of the tests has: it notes what it is told."""
    lfs = tmp_path / "bin" / "lfs"
    lfs.parent.mkdir()
    lfs.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n{"exit 0" if lustre else "exit 22"}\n')
    lfs.chmod(0o755)
    libraries = f". {ROOT}/jobs/lib/common.sh; . {ROOT}/jobs/lib/job.sh"
    done = call(f"PATH={lfs.parent}:$PATH SLURM_JOB_ID=7; {libraries}; striped {tmp_path}/g.h5")
    folder = tmp_path / ".striped-7"
    assert done.stdout.strip() == str((folder if lustre else tmp_path) / "g.h5"), done.stderr
    assert folder.exists() == lustre and (tmp_path / "told").read_text() == f"setstripe -c -1 -S 1M {folder}\n"
