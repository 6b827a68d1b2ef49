"""Which network MPICH is told to use before it starts; tests/jobs has what happens without that."""

import os

import pytest

from hpcgnn.comm.launch.launcher import choose_network

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
