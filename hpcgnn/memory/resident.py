"""What the kernel says of this process's memory. Imports nothing: it is asked before torch is loaded, and before and
after MPI is started.
"""


def status(field: str) -> int:
    """A size from /proc/self/status, such as 'VmRSS:', in bytes; 0 where the kernel does not have it."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0


def resident_bytes() -> int:
    """Resident memory now."""
    return status("VmRSS:")


def file_bytes() -> int:
    """Resident pages of files: program code, of which all processes of a node have one copy together."""
    return status("RssFile:")


def shared_bytes() -> int:
    """Resident shared memory: the MPI library passes messages through it on a node."""
    return status("RssShmem:")
