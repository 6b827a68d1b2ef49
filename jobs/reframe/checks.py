"""The costs of the program on a site, compared with earlier ones: a suite of ReFrame.

Each system of a site file (sites/) has a table in references.toml: the graph, the margins, and the figures to compare
with. A figure without a reference is recorded and not judged. `bash jobs/reframe/run.sh` runs the suite.
"""

import json
import tomllib
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import (
    fixture,
    parameter,
    performance_function,
    run_after,
    run_before,
    sanity_function,
    variable,
)

HERE = Path(__file__).resolve().parent
REFERENCES = tomllib.loads((HERE / "references.toml").read_text(encoding="utf-8"))
# The unit says which margin holds. Bytes and seconds may be fewer.
MARGINS = {"s": "time", "B": "memory"}
# Compared by sanity checks, to the byte.
EXACT = {"halo_bytes_per_epoch"}


class Measurement(rfm.RunOnlyRegressionTest):
    """A test with references. launched: whether the launcher of the site starts it."""

    valid_systems = ["*"]
    valid_prog_environs = ["hpcgnn"]
    sourcesdir = None
    executable = "python"
    exclusive_access = True
    time_limit = "30m"
    launched = variable(bool, value=True)
    ranks_wanted = 1

    @property
    def system_table(self):
        """The reference of this system in references.toml."""
        return REFERENCES.get(self.current_system.name, REFERENCES["default"])

    @property
    def figures(self):
        """{name: reference} of this test on this system."""
        return self.system_table.get(self.name.split()[0], {}).get(str(self.ranks_wanted), {})

    @run_after("setup")
    def take_what_the_site_gives(self):
        """Ranks, ranks of a node and threads; references and margins."""
        extras = self.current_partition.extras
        self.num_tasks = self.ranks_wanted
        self.num_tasks_per_node = min(self.num_tasks, extras.get("ranks_per_node", 1))
        self.num_cpus_per_task = extras.get("threads", 1)
        self.env_vars["OMP_NUM_THREADS"] = self.num_cpus_per_task

    @run_before("run")
    def start_without_launcher(self):
        """A command of one process, or one that starts its own ranks."""
        if not self.launched:
            self.job.launcher = getlauncher("local")()

    @run_before("performance")
    def compare_with_references(self):
        """Set `reference` from references.toml, by the unit of each figure."""
        bounds = {}
        for name, value in self.figures.items():
            if name in self.perf_variables and name not in EXACT:
                unit = self.perf_variables[name].unit
                bounds[name] = (value, None, self.system_table["margins"][MARGINS[unit]], unit)
        self.reference = {"*": bounds}


class GeneratedGraph(Measurement):
    """The graph of this system, with maps for all tests; a fixture of theirs."""

    launched = False

    @run_before("run")
    def say_what_to_make(self):
        """One command makes it, another the maps."""
        graph = self.system_table["graph"]
        options = [word for key, value in graph.items() for word in (f"--{key}", str(value))]
        self.executable_opts = ["-P -m partition_tools generate planted -o graph.h5", *options]
        self.postrun_cmds = ["python -P -m partition_tools partition add graph.h5 --ranks 1,2,4"]

    @sanity_function
    def has_its_maps(self):
        """The file is there, and the last map was written."""
        return sn.all([sn.path_exists(f"{self.stagedir}/graph.h5"), sn.assert_found("to 4 ranks", self.stderr)])

    @property
    def file(self):
        """The path of the graph."""
        return f"{self.stagedir}/graph.h5"


@rfm.simple_test
class Training(Measurement):
    """GraphSAGE with sequential aggregation: seconds of an epoch, memory, and bytes, which are exact."""

    ranks = parameter([1, 2, 4])
    graph = fixture(GeneratedGraph, scope="environment")

    @run_after("init")
    def of_so_many_ranks(self):
        """ReFrame's parameter, as the other tests have it."""
        self.ranks_wanted = self.ranks

    @run_before("run")
    def say_what_to_train(self):
        """As README.md has it; no evaluation, which is no part of an epoch's time."""
        epochs = self.system_table["epochs"]
        self.executable_opts = [
            f"-P -m hpcgnn train --graph {self.graph.file} --run-dir run --model sage --layers 3 --hidden 64",
            f"--eval-every 0 --epochs {epochs}",
        ]

    def summary(self):
        """The summary of the run."""
        return json.loads(Path(self.stagedir, "run", "summary.json").read_text(encoding="utf-8"))

    @sanity_function
    def has_trained_and_sent_what_it_must(self):
        """All epochs, on all ranks; as many bytes of the halo as the reference."""
        said = self.summary()
        wanted = {"ranks": self.ranks, "epochs": self.system_table["epochs"]}
        if "halo_bytes_per_epoch" in self.figures:
            wanted["halo_bytes_per_epoch"] = self.figures["halo_bytes_per_epoch"]
        return sn.all(
            sn.assert_eq(said[key], value, f"{key}: expected {value}, got {said[key]}") for key, value in wanted.items()
        )

    @performance_function("s")
    def epoch_seconds(self):
        """Median over epochs, on the slowest rank."""
        return self.summary()["epoch_seconds"]["median"]

    @performance_function("B")
    def training_growth_bytes(self):
        """The memory that training adds to the largest rank."""
        return self.summary()["training_growth_bytes"]["max"]

    @performance_function("B")
    def halo_bytes_per_epoch(self):
        """Sent by all ranks; compared in the sanity check."""
        return self.summary()["halo_bytes_per_epoch"]
