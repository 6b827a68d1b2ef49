"""`hpcgnn doctor`: the facts that a support request needs, checked on the ranks of the command, with a remedy for each
fault.
"""

import importlib.util
import os
import platform
import socket
import sys
import warnings
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from importlib import metadata

import torch
from tabulate import tabulate

from hpcgnn import __version__, cores
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.engine.summary import versions
from hpcgnn.errors import HpcgnnError
from hpcgnn.listing import every
from hpcgnn.memory.resident import MMAP_THRESHOLD, set_allocator_policy
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
    torch.set_num_threads(session.threads)
    mine = [*_software(), *_threads(session), *_machine()]
    ring = _ring(comm)
    said = comm.allgather_object((socket.gethostname(), [astuple(finding) for finding in mine]))
    everyone = [(host, [Finding(*each) for each in theirs]) for host, theirs in said]
    if comm.rank != 0:
        return int(any(f.remedy and f.fatal for _, findings in everyone for f in findings) or bool(ring.remedy))
    hosts = ", ".join(sorted({host for host, _ in everyone}))
    title = f"{comm.size} rank{'s' if comm.size > 1 else ''}, hosts: {hosts}"
    transport = Finding("transport", f"{session.describe()}, {session.ranks_on_node} ranks on the first node")
    return _report(title, [transport, ring, *_merge(everyone)])


def examine_without_mpi(error: HpcgnnError) -> int:
    """Print the findings that need no MPI. error: why MPI cannot be started. Returns 1."""
    findings = [Finding("transport", "cannot be used", str(error)), *_software(), *_machine()]
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
            if theirs != mine and not (mine.subject in ("cores", "NUMA") and not theirs.remedy):
                remedy = theirs.remedy or "use the same environment on all nodes"
                subject = f"{theirs.subject} (rank {rank}, {host})"
                result.append(Finding(subject, theirs.found, remedy, theirs.fatal))
    return result


def _software() -> Iterator[Finding]:
    found = versions()
    yield Finding("python", f"{found.pop('python')} at {sys.executable}, {platform.platform()}")
    yield Finding("packages", ", ".join(f"{name} {version}" for name, version in found.items()))
    import h5py

    parallel = "yes" if h5py.get_config().mpi else "no"
    yield Finding("HDF5", f"{h5py.version.hdf5_version}, parallel: {parallel} (not needed)")


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


def _threads(session: Session) -> Iterator[Finding]:
    usable, shared = cores.usable(), session.shares_cores
    yield Finding("threads", f"{session.threads} per rank, torch uses {torch.get_num_threads()}")
    physical = cores.physical(usable)
    siblings = f"; hardware threads of {physical} cores" if physical < len(usable) else ""
    remedy = "ranks share cores: start fewer ranks per node, lower --threads, or bind ranks (srun --cpu-bind=cores)"
    found = f"{len(usable)} usable of {os.cpu_count()}: {every(sorted(usable))}{siblings}"
    yield Finding("cores", found, remedy if shared else "", fatal=False)
    yield _domains()


def _domains() -> Finding:
    domains = cores.domains_of(cores.usable())
    if len(domains) < 2:
        found = f"cores of domain {domains[0]}" if domains else "the kernel does not tell"
        return Finding("NUMA", found)
    return Finding(
        "NUMA",
        f"cores of {len(domains)} domains, {every(domains)}",
        "a rank of several domains reads far memory: start one rank for each domain, bound to its cores (srun "
        "--ntasks-per-node, --cpu-bind=cores), or spread its memory (numactl --interleave=all)",
        fatal=False,
    )


def _machine() -> Iterator[Finding]:
    """The kernels, OpenMP, the processor, the allocator, and packages that few need."""
    from hpcgnn import kernels

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
    fixed = f"glibc, mmap threshold fixed at {MMAP_THRESHOLD >> 20} MiB"
    yield Finding("allocator", fixed if set_allocator_policy() else "not glibc: freed memory may stay with the process")
    for module, extra, purpose in (("matplotlib", "plot", "curves.png"), ("polars", "import", "importing tables")):
        said = f"absent; for {purpose}: pip install 'hpcgnn[{extra}]'"
        if importlib.util.find_spec(module) is not None:
            said = metadata.version(module)
        yield Finding(module, said)
