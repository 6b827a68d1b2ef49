"""Parts of the job scripts that need no SLURM: ranks and threads of a job, large files, and site files.

The functions of the job scripts run as in a job; only the variables of SLURM are given. Ranks and threads follow from
the kernel's files about domains and hardware threads. A machine may have one domain and no hardware threads: other
files cover the kernel's files, in a namespace of mounts.
"""

import re
from runpy import run_path

import pytest
from slurm_helpers import ROOT, call

from hpcgnn import cores

CORES = sorted(cores.usable())
JOB = {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "3", "SLURM_CPUS_ON_NODE": "2"}
SCRIPTS = f"script=train.sbatch; site_file=site; . {ROOT}/jobs/lib/common.sh; . {ROOT}/jobs/lib/job.sh"
SHOW = 'echo "$ranks ranks, $ranks_per_node of a node, $threads threads"'
needs_two = pytest.mark.skipif(cores.physical(CORES) < 2, reason="needs two cores")


def job(covers=(), then=SHOW, before="", **variables):
    """The result of a job on two cores with these variables: `before`, count_ranks, `then`.

    covers: [(file or folder of the kernel's, the file or folder over it)].
    """
    words = [f"mount --bind {new} {old}" for old, new in covers]
    words += [f"export {name}={value}" for name, value in {**JOB, **variables}.items()]
    namespace = ["unshare", "--mount"] if covers else []
    if covers and call([*namespace, "mount", "--bind", "/tmp", "/tmp"]).returncode:
        pytest.skip("covering files of the kernel needs the right to a namespace of mounts")
    line = "; ".join(["set -e", *words, SCRIPTS, *filter(None, [before]), "count_ranks", then])
    return call([*namespace, "taskset", "-c", ",".join(map(str, CORES[:2])), "bash", "-c", line])


def counted(*covers, **variables):
    """The line of count_ranks."""
    done = job(covers, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def two_domains(tmp_path):
    """One core in each of two domains."""
    for number, core in enumerate(CORES[:2]):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{core}\n")
    return [("/sys/devices/system/node", tmp_path)]


@pytest.fixture
def one_core(tmp_path):
    """Two hardware threads of one core."""
    path = tmp_path / "siblings"
    path.write_text(",".join(map(str, CORES[:2])) + "\n")
    return [(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list", path) for core in CORES[:2]]


@needs_two
def test_a_rank_for_each_domain(two_domains):
    assert counted(*two_domains) == "6 ranks, 2 of a node, 1 threads"
    assert counted(*two_domains, SITE_RANKS_PER_NODE=1) == "3 ranks, 1 of a node, 2 threads"
    assert counted(*two_domains, SLURM_NTASKS=3) == "3 ranks, 1 of a node, 2 threads"


@needs_two
def test_hardware_threads_are_no_cores(one_core):
    assert counted(*one_core, SITE_RANKS_PER_NODE=1) == "3 ranks, 1 of a node, 1 threads"
    assert counted(SITE_RANKS_PER_NODE=1) == "3 ranks, 1 of a node, 2 threads"
    assert counted(*one_core, SITE_RANKS_PER_NODE=1, SLURM_CPUS_PER_TASK=2).endswith("2 threads"), "the user decides"


@needs_two
@pytest.mark.parametrize("sockets", ["", "2"])
def test_a_system_that_tells_no_domains(tmp_path, sockets):
    """SLURM's sockets are taken, and a line reports this. Where SLURM does not know them either, the site has to."""
    done = job([("/sys/devices/system/node", tmp_path)], before=f"sinfo() {{ echo {sockets}; }}")
    assert "by the sockets that SLURM knows" in done.stdout
    if sockets:
        assert done.stdout.strip().endswith("6 ranks, 2 of a node, 1 threads"), done.stderr
    else:
        assert done.returncode == 2 and "set SITE_RANKS_PER_NODE in site" in done.stderr, done.stderr


@pytest.mark.skipif(len(CORES) != 2 or cores.online() != set(CORES), reason="needs a machine of two cores for itself")
@needs_two
def test_mpiexec_binds_ranks_to_cores_of_their_own():
    """As many threads as fit: with more than cores nobody is bound."""
    variables = {"SITE_LAUNCHER": "mpiexec", "SLURM_NTASKS": 2, "SLURM_JOB_NUM_NODES": 1}
    # In brackets, since the launcher may mix the lines of ranks.
    show, program = "choose_launcher; echo $launcher", "python -c 'import os; print(os.sched_getaffinity(0))'"
    if "MPICH" not in call("python -c 'from mpi4py import MPI; print(MPI.Get_library_version())'").stdout:
        pytest.skip("the words are those of MPICH")
    done = job(then=f"{show}; $launcher -n 2 {program}", SLURM_CPUS_PER_TASK=1, **variables)
    assert done.returncode == 0, done.stderr
    words, *places = done.stdout.strip().splitlines()
    assert words.endswith("mpiexec -ppn 2 -bind-to core:1")
    assert sorted(re.findall(r"\{(.*?)\}", "".join(places))) == list(map(str, CORES))
    done = job(then=show, SLURM_CPUS_PER_TASK=2, **variables)
    assert done.stdout.strip().endswith("mpiexec -ppn 2"), done.stderr


@pytest.mark.parametrize(
    "plugins, options",
    [
        ("task/affinity,task/cgroup", "--distribution=block:block --cpu-bind=cores --hint=nomultithread"),
        ("task/cgroup", "--distribution=block:block --cpu-bind=cores"),
        ("task/none", ""),
    ],
)
def test_how_srun_binds(plugins, options):
    """By SLURM's list of its plugins. Hardware threads are left alone where it can do that."""
    done = job(before=f"scontrol() {{ echo 'TaskPlugin              = {plugins}'; }}", then="binding", SLURM_NTASKS=3)
    assert done.returncode == 0 and done.stdout.strip() == options, done.stderr


@pytest.mark.parametrize("lustre", [True, False])
def test_files_are_made_in_a_folder_of_many_servers(tmp_path, lustre):
    """`lfs` stands in for a Lustre file system's, which no machine of the tests has: it notes its arguments."""
    lfs = tmp_path / "bin" / "lfs"
    lfs.parent.mkdir()
    lfs.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n{"exit 0" if lustre else "exit 22"}\n')
    lfs.chmod(0o755)
    done = call(f"PATH={lfs.parent}:$PATH SLURM_JOB_ID=7; {SCRIPTS}; striped {tmp_path}/g.h5")
    folder = tmp_path / ".striped-7"
    assert done.stdout.strip() == str((folder if lustre else tmp_path) / "g.h5"), done.stderr
    assert folder.exists() == lustre and (tmp_path / "told").read_text() == f"setstripe -c -1 -S 1M {folder}\n"


def test_a_site_that_has_its_environment_sent_is_told_what_to_take(tmp_path):
    (tmp_path / "site.sh").write_text("SITE_STAGE=/tmp\n")
    done = call(f"script=x; . {ROOT}/jobs/lib/common.sh; load_site {tmp_path}/site.sh")
    assert done.returncode == 2 and "SITE_STAGE in" in done.stderr and "HPCGNN_FORK_SERVER=1" in done.stderr


def test_a_pass_takes_no_call_for_each_peer():
    """Whatever the form of rows and returns, with one rank a node and with several."""
    lanes = run_path(f"{ROOT}/jobs/bench/network/lanes.py")
    for name in lanes["CASES"]:
        for per_node in (1, 4):
            few, many = (lanes["steady_calls"](ranks, per_node, name) for ranks in (16, 64))
            assert few == many < 200, (name, per_node)
