"""`hpcgnn doctor`: the facts that a support request needs, checked on the ranks of the command, with a remedy for each
fault.
"""

import os
import platform
import socket
import sys
import warnings
from collections.abc import Iterator
from dataclasses import astuple, dataclass

import torch
from tabulate import tabulate

from hpcgnn import __version__, kernels
from hpcgnn.app.remarks import describe_affinity
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.engine.summary import versions
from hpcgnn.errors import HpcgnnError
from hpcgnn.memory.resident import use_threads
from hpcgnn.terminal import tell

RING_BYTES = 1 << 20


@dataclass(frozen=True)
class Finding:
    """One line of the report. remedy: empty if all is well; fatal: whether training cannot work or would be wrong."""

    subject: str
    found: str
    remedy: str = ""
    fatal: bool = True


def examine(session: Session) -> int:
    """Print the report on rank 0. Collective. Returns 0, or 1 if something is wrong on any rank."""
    comm = session.comm
    use_threads(session.threads)
    ring, (places, advice) = _ring(comm), describe_affinity(session)
    said = comm.allgather_object((socket.gethostname(), [astuple(finding) for finding in _of_rank()]))
    everyone = [(host, [Finding(*each) for each in theirs]) for host, theirs in said]
    if comm.rank != 0:
        return int(any(f.remedy and f.fatal for _, findings in everyone for f in findings) or bool(ring.remedy))
    hosts = ", ".join(sorted({host for host, _ in everyone}))
    title = f"{comm.size} rank{'s' if comm.size > 1 else ''}, hosts: {hosts}"
    transport = Finding("transport", f"{session.describe()}, {session.ranks_on_node} ranks on the first node")
    used = f"{session.threads} threads per rank; {'; '.join(places)}"
    return _report(title, [transport, ring, Finding("cores", used, "; ".join(advice), fatal=False), *_merge(everyone)])


def examine_without_mpi(error: HpcgnnError) -> int:
    """Print the findings that need no MPI. error: why MPI cannot be started. Returns 1."""
    findings = [Finding("transport", "cannot be used", str(error)), *_of_rank()]
    return _report(f"host {socket.gethostname()}, without MPI", findings)


def _report(title: str, findings: list[Finding]) -> int:
    """Print the findings and the remedies. Returns 0, or 1 if one of them is fatal."""
    tell(f"hpcgnn {__version__} on {title}\n")
    marks = [("ok" if not f.remedy else "WRONG" if f.fatal else "note", f.subject, f.found) for f in findings]
    tell(tabulate(marks, tablefmt="plain", maxcolwidths=[None, None, 100]))
    remedies = [f for f in findings if f.remedy]
    if remedies:
        tell("\nWhat to do:\n" + "\n".join(f"  {f.subject}: {f.remedy}" for f in remedies))
    wrong = any(f.fatal for f in remedies)
    tell("\nsomething is wrong" if wrong else "\nall is well")
    return int(wrong)


def _merge(everyone: list[tuple[str, list[Finding]]]) -> list[Finding]:
    """The findings of rank 0, and those in which other ranks differ, named."""
    first = everyone[0][1]
    result = list(first)
    for rank, (host, findings) in enumerate(everyone[1:], start=1):
        for mine, theirs in zip(first, findings, strict=True):
            if theirs != mine:
                remedy = theirs.remedy or "use the same environment on all nodes"
                subject = f"{theirs.subject} (rank {rank}, {host})"
                result.append(Finding(subject, theirs.found, remedy, theirs.fatal))
    return result


def _ring(comm: Communicator) -> Finding:
    """Each rank passes a message of 1 MiB around; every rank checks the bytes."""
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    if comm.size == 1:
        return Finding("ring", "one rank, no neighbour; start it as `mpiexec -n 4 hpcgnn doctor` to test messages")
    out, come = (
        torch.full((RING_BYTES,), comm.rank % 251, dtype=torch.uint8),
        torch.empty(RING_BYTES, dtype=torch.uint8),
    )
    comm.exchange([(after, out)], [(before, come)], "control").finish()
    wrong = comm.total(torch.tensor([int((come != before % 251).any())]))
    remedy = "messages arrive damaged: check the MPI library and its transport settings" if wrong else ""
    return Finding("ring", f"{comm.size} ranks passed 1 MiB around", remedy)


def _of_rank() -> Iterator[Finding]:
    """The packages, the kernels and OpenMP of this rank."""
    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    yield Finding("packages", f"{packages}; {sys.executable}, {platform.platform()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = kernels.describe()
    x, out = torch.arange(12.0).view(4, 3), torch.empty(2, 3)
    kernels.gather(out, x, torch.tensor([0, 2, 3]), torch.tensor([0, 3, 1], dtype=torch.int32))
    right = torch.equal(out, torch.stack([x[0] + x[3], x[1]]))
    if found["native"]:
        products = "our own" if found["products"] == "own" else "of torch"
        remedy = "the kernels compute wrong sums: install again with another compiler, or set HPCGNN_KERNELS=reference"
        said = f"native, vector path {found['vector_path']}, products {products}"
        yield Finding("kernels", said, "" if right else remedy)
    else:
        remedy = "install a C compiler with OpenMP and then the package again"
        yield Finding("kernels", f"pure torch, many times slower: {found['reason']}", remedy, fatal=False)
    runtimes = [os.path.basename(path) for path in found["openmp_runtimes"]]
    settings = ", ".join(f"{name}={os.environ.get(name, 'unset')}" for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
    remedy = (
        "two OpenMP runtimes in one process fight for the cores: install torch and hpcgnn from the same kind of package"
    )
    yield Finding("OpenMP", f"{', '.join(runtimes)}; {settings}", remedy if len(runtimes) > 1 else "", fatal=False)
