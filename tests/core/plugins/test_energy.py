"""Energy: counters of a made-up tree of files, SLURM's answers made up, and true reasons where there is nothing."""

import contextlib
import os
from types import SimpleNamespace

import pytest

from hpcgnn.plugins import energy as energy_module
from hpcgnn.plugins.energy import ALL_THAT_RAN, Accounting, Counters, Meter, find_energy
from hpcgnn.plugins.powercap import MOST_WATTS, NotAvailable, find_domains

RANGE = 262_143_328_850  # of an Intel package: 262 kJ


class Tree:
    """Counters as the kernel shows them, below a folder."""

    def __init__(self, root, **domains):
        """domains: {'0': (name, microjoules), '0_1': …}; `_` stands for `:`."""
        self.root = root
        self.folders = {key: root / f"intel-rapl:{key.replace('_', ':')}" for key in domains}
        root.mkdir(exist_ok=True)
        (root / "intel-rapl").mkdir()  # the control type, which counts nothing
        for key, (name, value) in domains.items():
            self.folders[key].mkdir()
            (self.folders[key] / "name").write_text(f"{name}\n")
            (self.folders[key] / "max_energy_range_uj").write_text(f"{RANGE}\n")
            self.set(key, value)

    def set(self, key, microjoules):
        # In one step, as the kernel does: a thread may be reading.
        new = self.folders[key] / "new"
        new.write_text(f"{microjoules}\n")
        new.rename(self.folders[key] / "energy_uj")


TWO_SOCKETS = {
    "0": ("package-0", 1_000_000),
    "0_0": ("core", 500_000),
    "0_1": ("dram", 100_000),
    "1": ("package-1", 9_000_000),
    "1_0": ("core", 0),
    "1_1": ("dram", 200_000),
    "2": ("psys", 50_000_000),
}


def joules_of(domains):
    """{kind: joules} after one look."""
    found = {}
    for domain in domains:
        domain.look()
        found[domain.kind] = found.get(domain.kind, 0) + domain.joules
    return found


def test_sockets_and_their_memory_are_summed_and_nothing_twice(tmp_path):
    tree = Tree(tmp_path, **TWO_SOCKETS)
    mmio = tmp_path / "intel-rapl-mmio:0"  # package-0 once more
    mmio.mkdir()
    for name in ("name", "max_energy_range_uj", "energy_uj"):
        (mmio / name).write_text((tree.folders["0"] / name).read_text())
    domains = find_domains(tmp_path)
    for key, value in {"0": 3, "0_0": 2, "0_1": 1.1, "1": 14, "1_1": 0.7, "2": 99}.items():
        tree.set(key, round(value * 1e6))
    assert joules_of(domains) == pytest.approx({"package": 2 + 5, "dram": 1 + 0.5})


def test_the_whole_platform_counts_only_alone(tmp_path):
    tree = Tree(tmp_path, **{"0": ("psys", 0), "0_0": ("core", 0)})
    domains = find_domains(tmp_path)
    tree.set("0", 4_000_000)
    assert joules_of(domains) == {"psys": 4.0}


def test_dies_of_a_package(tmp_path):
    tree = Tree(tmp_path, **{"0": ("package-0-die-0", 0), "1": ("package-0-die-1", 0)})
    domains = find_domains(tmp_path)
    tree.set("0", 1_000_000)
    tree.set("1", 2_000_000)
    assert joules_of(domains) == {"package": 3.0}


def test_a_counter_that_comes_round(tmp_path):
    tree = Tree(tmp_path, **{"0": ("package-0", RANGE - 1_999_999)})
    (domain,) = find_domains(tmp_path)
    for value in (1_000_000, RANGE - 1_000_000, 0):
        tree.set("0", value)
        domain.look()
    assert domain.joules == pytest.approx((RANGE + 1 + 2_000_000 - 1) / 1e6, abs=1e-5)


def test_a_counter_that_was_not_looked_at_for_too_long_tells_nothing(tmp_path):
    clock = [0.0]
    Tree(tmp_path, **{"0": ("package-0", 0)})
    (domain,) = find_domains(tmp_path, lambda: clock[0])
    clock[0] += domain.seconds_between_looks
    domain.look()
    clock[0] += RANGE / 1e6 / MOST_WATTS
    with pytest.raises(NotAvailable, match="come round more than once"):
        domain.look()


@pytest.mark.parametrize(
    "break_it, said",
    [
        (lambda folder: (folder / "energy_uj").unlink(), "energy_uj cannot be read .No such file"),
        (lambda folder: (folder / "energy_uj").write_text("much"), "holds no number"),
        (lambda folder: (folder / "name").unlink(), "name cannot be read"),
        (lambda folder: (folder / "max_energy_range_uj").write_text("0"), "does not say when the counter begins again"),
        (lambda folder: (folder / "name").write_text("core"), "has no counters"),
    ],
)
def test_what_cannot_be_read_is_a_reason(tmp_path, break_it, said):
    break_it(Tree(tmp_path, **{"0": ("package-0", 0)}).folders["0"])
    with pytest.raises(NotAvailable, match=said):
        find_domains(tmp_path)


def test_no_tree_at_all(tmp_path):
    with pytest.raises(NotAvailable, match="there is no .*/powercap"):
        find_domains(tmp_path / "powercap")


def test_counters_that_root_alone_may_read(tmp_path, monkeypatch):
    """Root may read what nobody may, so that the kernel's refusal is made up where the tests run as root."""
    folder = Tree(tmp_path, **{"0": ("package-0", 0)}).folders["0"]
    (folder / "energy_uj").chmod(0)
    if os.geteuid() == 0:
        read = type(folder).read_text

        def refused(path, *arguments, **options):
            if path.name == "energy_uj":
                raise PermissionError(13, "Permission denied")
            return read(path, *arguments, **options)

        monkeypatch.setattr(type(folder), "read_text", refused)
    with pytest.raises(NotAvailable, match="only root may read .*CVE-2020-8694.*ask the administrator"):
        find_domains(tmp_path)


def test_counters_are_looked_at_while_epochs_run(tmp_path, monkeypatch):
    tree = Tree(tmp_path, **{"0": ("package-0", 0)})
    monkeypatch.setattr(energy_module, "MOST_SECONDS_BETWEEN_LOOKS", 0.001)
    counters = Counters(tmp_path)
    looked = counters._thread
    tree.set("0", 3_000_000)
    assert counters.end() == {"package": 3.0} and not looked.is_alive()


SHOWN = "Configuration data\nAccountingStorageType   = accounting_storage/none\nAcctGatherEnergyType    = {}\n"


def slurm(plugin, *answers):
    """A SLURM with this plugin whose sstat gives these answers, one after the other."""
    left = list(answers)

    def ask(command):
        if command[0] == "scontrol":
            return SHOWN.format(plugin)
        assert command[0] == "sstat" and command[-1] == "--jobs=7.0"
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_slurm_counts_the_step():
    accounting = Accounting("7.0", slurm("acct_gather_energy/ipmi", "1000\n", "1750\n"))
    assert accounting.plugin == "ipmi" and accounting.end() == 750


@pytest.mark.parametrize(
    "step, answers, said",
    [
        (None, ("acct_gather_energy/rapl",), "SLURM did not start these ranks"),
        ("7.0", ("acct_gather_energy/none",), "AcctGatherEnergyType is acct_gather_energy/none"),
        ("7.0", ("(null)",), "does not count energy"),
        ("7.0", ("acct_gather_energy/rapl", ""), "has no energy of the running step"),
        ("7.0", ("acct_gather_energy/rapl", NotAvailable("SLURM's sstat is not there")), "sstat is not there"),
        ("7.0", ("acct_gather_energy/rapl", "5", "5"), "took no sample"),
    ],
)
def test_why_slurm_does_not_tell(step, answers, said):
    with pytest.raises(NotAvailable, match=said):
        Accounting(step, slurm(*answers)).end()


def test_a_command_of_slurm_that_is_not_there_or_fails():
    with pytest.raises(NotAvailable, match="sstat-that-nobody-has is not there"):
        energy_module.ask_slurm(["sstat-that-nobody-has"])
    with pytest.raises(NotAvailable, match="ended with code 3 and said: no plugin"):
        energy_module.ask_slurm(["sh", "-c", "echo no plugin >&2; exit 3"])


def measured(root, epochs=(1, 4), may_ask=True, ask=None, during=lambda: None):
    """`energy` of a run of one rank."""
    meter = Meter(True, may_ask, root, ask or (lambda command: pytest.fail("SLURM is not asked")))
    with meter.watching():
        during()
    return find_energy([meter.reading], epochs)


def test_a_run_with_counters(tmp_path):
    tree = Tree(tmp_path, **TWO_SOCKETS)
    found = measured(tmp_path, (3, 6), during=lambda: (tree.set("0", 7_000_000), tree.set("1_1", 2_200_000)))
    assert found == {
        "joules": 8.0,
        "joules_per_epoch": 2.0,
        "epochs": [3, 6],
        "nodes": 1,
        "domains": {"package": 6.0, "dram": 2.0},
        "source": "powercap",
        "covers": f"processors and memory: {ALL_THAT_RAN}",
    }


def test_a_run_without_any(tmp_path, monkeypatch):
    monkeypatch.setattr(energy_module, "slurm_step", lambda: None)
    found = measured(tmp_path / "powercap")
    assert found["joules"] is None
    assert found["reason"].startswith(f"not available, because there is no {tmp_path}/powercap")
    assert found["reason"].endswith("; and SLURM did not start these ranks")


def test_slurm_is_asked_where_there_are_no_counters(tmp_path, monkeypatch):
    monkeypatch.setattr(energy_module, "slurm_step", lambda: "7.0")
    found = measured(tmp_path, (1, 5), ask=slurm("acct_gather_energy/xcc", "100", "600"))
    assert (found["joules"], found["joules_per_epoch"], found["source"]) == (500.0, 100.0, "slurm")
    assert "xcc" in found["covers"] and "other jobs too" in found["covers"]


def test_an_error_in_an_epoch_is_not_hidden_and_ends_the_watching(tmp_path):
    Tree(tmp_path, **TWO_SOCKETS)
    meter = Meter(True, True, tmp_path)
    with contextlib.suppress(KeyError), meter.watching():
        raise KeyError
    assert meter.reading["joules"] == {"package": 0.0, "dram": 0.0}


def test_ranks_that_are_not_the_first_of_their_node_read_nothing(tmp_path):
    meter = Meter(False, False, tmp_path / "missing")
    with meter.watching():
        pass
    assert meter.reading is None


def reading(host, **joules):
    return {"host": host, "joules": joules}


def test_nodes_are_summed():
    found = find_energy([reading("a", package=5.0), None, reading("b", package=7.0), None], (1, 2))
    assert (found["joules"], found["nodes"], found["joules_per_epoch"]) == (12.0, 2, 6.0)


@pytest.mark.parametrize("rank, reads, asks", [(0, True, True), (1, False, False), (2, True, False), (3, False, False)])
def test_the_first_rank_of_each_kernel_reads_and_rank_0_asks(rank, reads, asks):
    """Ranks 0 and 1 are on one machine, 2 and 3 on another."""
    here = [own // 2 == rank // 2 for own in range(4)]
    comm = SimpleNamespace(rank=rank, allgather_object=lambda own: [own if same else "other" for same in here])
    meter = Meter.of(comm)
    assert (meter._reads, meter._may_ask) == (reads, asks)


def test_memory_that_not_all_nodes_count_apart_is_said():
    found = find_energy([reading("a", package=5.0, dram=1.0), reading("b", package=7.0)], (1, 1))
    assert found["covers"].startswith("processors and memory (on 1 of 2 nodes):") and found["joules"] == 13.0


def test_one_silent_node_leaves_no_number():
    silent = {"host": "n2", "reason": "only root may read it"}
    found = find_energy([reading("a", package=5.0), silent], (1, 2))
    assert found == {"joules": None, "reason": "not available, because on n2 only root may read it"}
    assert "no epoch was run" in find_energy([reading("a", package=5.0)], (5, 4))["reason"]
