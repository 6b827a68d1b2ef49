"""ReFrame's settings for a cluster: copy this file, edit the marked lines, and name the copy with `run.sh --site`.

`name` is the name of the system's table in references.toml; without one the table `default` is used, which has no
figures.
"""

site_configuration = {
    "systems": [
        {
            "name": "mycluster",  # EDIT
            "descr": "",
            "hostnames": [".*"],  # EDIT: login nodes, a regular expression
            "modules_system": "nomod",  # EDIT: lmod, tmod4, … where `modules` below has names
            "partitions": [
                {
                    "name": "cpu",
                    "descr": "",
                    "scheduler": "slurm",  # squeue on a cluster without accounting
                    "launcher": "srun",
                    "access": ["--partition=cpu", "--account=project"],  # EDIT
                    "environs": ["hpcgnn"],
                    "max_jobs": 8,
                    # EDIT: one rank for each NUMA domain, and its cores (docs/cluster.md)
                    "extras": {"ranks_per_node": 2, "threads": 32},
                    # The PMI that the MPI library speaks: pmi2 (MPICH, Intel MPI) or pmix (Open MPI).
                    "env_vars": [["SLURM_MPI_TYPE", "pmi2"]],
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "hpcgnn",
            "modules": [],  # EDIT: the compiler and the MPI that hpcgnn was installed with
        }
    ],
}
