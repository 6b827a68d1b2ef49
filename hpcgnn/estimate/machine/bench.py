"""`hpcgnn bench machine`: a machine file of the nodes that it runs on."""

import argparse
import socket
import sys
from dataclasses import replace

from hpcgnn.comm.session import Session
from hpcgnn.config import Choices
from hpcgnn.errors import ConfigError
from hpcgnn.estimate.command import write
from hpcgnn.estimate.machine.disk import measure_disk
from hpcgnn.estimate.machine.measure import measure
from hpcgnn.output_files import check_outputs
from hpcgnn.terminal import tell


def bench(session: Session, choices: Choices, arguments: argparse.Namespace) -> None:
    """`hpcgnn bench machine`: measure on all ranks of the session, and write the machine file. Collective."""
    comm = session.comm
    with comm.together("looking for a place for the machine file", on_one=True):
        if comm.rank == 0:
            check_outputs({"-o": arguments.output}, force=arguments.force)

    if len(set(comm.allgather_object(socket.gethostname()))) > 1:
        error = ConfigError(
            "a machine file is of one node, and the ranks run on several; start as many as a node is to have, on one"
        )
        error.everywhere = True
        raise error

    def say(text: str) -> None:
        if comm.rank == 0:
            print(text, file=sys.stderr, flush=True)

    disk = None
    if arguments.scratch:
        disk = measure_disk(arguments.scratch, arguments.scratch_size << 30, comm)
        say(f"the disk of {arguments.scratch}: measured")
    machine = replace(measure(session, choices, say), scratch=disk)
    with comm.together("writing the machine file", on_one=True):
        if comm.rank == 0:
            write(arguments.output, replace(machine, name=arguments.name or machine.name).to_toml())
            tell(f"{arguments.output}: {machine.ranks} ranks × {machine.threads} threads on {machine.cores} cores")
