"""The settings that MPICH gets before it starts, and its memory for them; tests/jobs has more of networks."""

import os
from types import SimpleNamespace

import pytest

from hpcgnn.comm.launcher import check_shared_memory, choose_network
from hpcgnn.errors import ConfigError

BOTH = "MPICH Version:      5.0.2\nMPICH Device:       ch4:ucx ofi\nMPICH CC:           cc\n"
SRUN = {"PMI_FD": "11", "SLURM_STEP_ID": "0"}
CASES = {
    "srun and both": (SRUN, BOTH, "ofi"),
    "mpiexec": ({"PMI_FD": "9"}, BOTH, None),
    "mpiexec whose helpers srun started": ({**SRUN, "HYDI_CONTROL_FD": "7"}, BOTH, None),
    "UCX alone": (SRUN, BOTH.replace("ucx ofi", "ucx"), None),
    "another library": (SRUN, "Open MPI v5.0.11", None),
    "chosen": ({**SRUN, "MPIR_CVAR_CH4_NETMOD": "ucx"}, BOTH, "ucx"),
    "chosen by another name": ({**SRUN, "MPICH_CH4_NETMOD": "ucx"}, BOTH, None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_choice(case, monkeypatch):
    given, version, wanted = CASES[case]
    monkeypatch.setattr(os, "environ", dict(given))

    class Library:
        Get_library_version = staticmethod(lambda: version)

    choose_network(Library)
    assert os.environ.get("MPIR_CVAR_CH4_NETMOD") == wanted
    assert all(os.environ[name] == value for name, value in given.items())


@pytest.mark.parametrize(
    "mebibytes, ranks, library, expected",
    [
        (64, 4, BOTH, None),
        (64, 16, BOTH, "^posix"),  # a container's default: UCX ended in a segmentation fault
        (64, 16, BOTH.replace("ucx ", ""), None),
        (1, 1, BOTH, "too small"),  # a bus error
        (1, 1, "Open MPI v5.0.11", None),
        (0, 16, BOTH, None),  # without a limit
    ],
)
def test_shared_memory(monkeypatch, mebibytes, ranks, library, expected):
    """The sizes are those at which MPICH 5.0.2 was seen to end."""
    monkeypatch.setattr(os, "environ", {"PMI_SIZE": "32", "MPI_LOCALNRANKS": str(ranks)})
    size = SimpleNamespace(f_bavail=mebibytes << 8, f_blocks=mebibytes << 8, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: size)
    if expected == "too small":
        with pytest.raises(ConfigError, match=r"has 1,024 KiB free; MPICH needs 1,037 KiB .* make it larger"):
            check_shared_memory(library)
    else:
        check_shared_memory(library)
        assert os.environ.get("UCX_TLS") == expected
