"""The SLURM of virtual nodes on a machine with another SLURM, and its end."""

from slurm_helpers import LOCAL, call


def test_an_end_leaves_the_jobs_of_others(cluster):
    """Another SLURM comes and goes; `down` without --force refuses; the job runs on."""
    job = cluster.submit("--wrap 'sleep 300'")
    other = {"HPCGNN_SLURM_DIR": f"{cluster.environment['HPCGNN_SLURM_DIR']}-2"}
    assert call(["bash", LOCAL, "up", "1"], **other).returncode == 0
    assert call(["bash", LOCAL, "down"], **other).returncode == 0
    refused = cluster.run(f"bash {LOCAL} down", check=False)
    assert refused.returncode == 2 and "jobs run or wait" in refused.stderr
    assert cluster.state(job) in ("PENDING", "CONFIGURING", "RUNNING")
