"""ReFrame's settings for the local SLURM of virtual nodes (env/slurm-local.sh).

It has no accounting, so that jobs are followed by squeue. One job runs at a time: the nodes are one machine.
"""

site_configuration = {
    "systems": [
        {
            "name": "local",
            "descr": "virtual nodes on one machine",
            "hostnames": [".*"],
            "modules_system": "nomod",
            "partitions": [
                {
                    "name": "main",
                    "descr": "all virtual nodes",
                    "scheduler": "squeue",
                    "launcher": "srun",
                    "access": ["--partition=main"],
                    "environs": ["hpcgnn"],
                    "max_jobs": 1,
                    # For jobs/reframe/checks.py: how many ranks a node has, and threads a rank.
                    "extras": {"ranks_per_node": 2, "threads": 1},
                }
            ],
        }
    ],
    "environments": [{"name": "hpcgnn"}],
}
