"""`hpcgnn bench comm`: the transport of these ranks measured, as a table and for machine files."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from hpcgnn.app.bring_up import opened
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.config import Choices, make_config
from hpcgnn.errors import ConfigError
from hpcgnn.estimate.command import write
from hpcgnn.estimate.machine.machine import read_machine
from hpcgnn.estimate.machine.messages import MESSAGE, SIZES, halo, network_of, reduction, ring
from hpcgnn.estimate.machine.toml_text import toml_text
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.local import LocalGraph
from hpcgnn.output_files import check_outputs
from hpcgnn.terminal import tell

_SUMMED = (8, MESSAGE)
_UNITS = ((1e-3, "ms"), (1e-6, "us"))


def bench_comm(session: Session, choices: Choices, arguments: argparse.Namespace) -> None:
    """Measure over all ranks of the session, print the table, and write the requested file. Collective."""
    comm = session.comm
    with comm.together("checking the output file", on_one=True):
        if comm.rank == 0:
            _check(arguments)
    torch.set_num_threads(session.threads)
    local, partition = _load(comm, choices, arguments)
    # Ranks follow each other node by node: so far apart, every message leaves its node.
    apart = session.ranks_on_node if session.ranks_on_node < comm.size else 1
    if comm.rank == 0:
        print(f"{session.means.comm}: measuring", file=sys.stderr, flush=True)
    found = _measure(comm, local, apart, session.ranks_on_node, arguments)
    if comm.rank != 0:
        return
    record = {
        "ranks": comm.size,
        "ranks_per_node": session.ranks_on_node,
        "graph": arguments.graph,
        "partition": partition,
        "width": arguments.width,
        "transport": session.means.comm,
        **found,
    }
    tell(_table(record))
    if arguments.json:
        write(arguments.json, json.dumps(record, indent=1) + "\n")
    if arguments.output:
        write(arguments.output, _machine_file(found["network"], session, arguments))


def _check(arguments: argparse.Namespace) -> None:
    outputs = {"--json": arguments.json, "-o": arguments.output}
    check_outputs(outputs, [arguments.graph, arguments.like], arguments.force)
    if bool(arguments.output) != bool(arguments.like):
        raise ConfigError(
            "bench comm -o FILE.toml needs --like NODE.toml, and the other way round: the machine file of a node, "
            "which `hpcgnn bench machine -o NODE.toml` writes, since messages are but a part of a machine"
        )
    if arguments.like:
        if Path(arguments.like).absolute().parent != Path(arguments.output).absolute().parent:
            raise ConfigError(f"expected --like {arguments.like} in the same folder as -o {arguments.output}")
        read_machine(arguments.like)


def _load(comm: Communicator, choices: Choices, arguments: argparse.Namespace) -> tuple[LocalGraph | None, str | None]:
    """(this rank's share of --graph, the map's name), or nothing."""
    if not arguments.graph:
        return None, None
    config = make_config({"graph": arguments.graph, "partition": arguments.partition}, choices)
    with opened(config, comm) as (_, graph):
        rows = max(1, (arguments.halo_buffer << 20) // (3 * 4 * arguments.width))
        return load_local_graph(graph.file, graph.clusters, comm, rows, "keep", torch.float32), graph.map_name


def _measure(
    comm: Communicator, local: LocalGraph | None, apart: int, ranks_on_node: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """All figures of the transport, in seconds and bytes. Collective."""
    result: dict[str, Any] = {"network": asdict(network_of(comm, apart, ranks_on_node))}
    result["message_seconds"] = {str(size): ring(comm, size, apart)[0] for size in SIZES} if comm.size > 1 else {}
    result["reduction_seconds"] = {str(size): reduction(comm, size) for size in _SUMMED}
    if local is not None:
        result["halo"] = asdict(halo(comm, local, arguments.halo_buffer << 20, arguments.width))
    return result


def _table(record: dict[str, Any]) -> str:
    """A line for each figure."""
    lines: list[tuple[str, str]] = []
    for size, seconds in record["message_seconds"].items():
        lines.append((f"message of {_bytes(int(size))}", _seconds(seconds)))
        if int(size) >= MESSAGE:
            lines.append(("  GB/s of a rank, each way", f"{int(size) / seconds / 1e9:.2f}"))
    for size, seconds in record["reduction_seconds"].items():
        lines.append((f"sum over all ranks of {_bytes(int(size))}", _seconds(seconds)))
    lines.append(("GB/s of a node, each way", f"{record['network']['bandwidth'] / 1e9:.2f}"))
    lines.append(("  share left where all send to all", f"{record['network']['bisection']:.2f}"))
    if (found := record.get("halo")) is not None:
        what = f"halo, {_bytes(found['bytes'])} in {found['messages']} messages and {found['turns']} turns"
        lines.append((what, _seconds(found["seconds"])))
    nodes = f"{record['ranks']} ranks, {record['ranks_per_node']} on the first node"
    return tabulate(lines, [nodes, record["transport"]], tablefmt="simple", disable_numparse=True, stralign="right")


def _bytes(size: int) -> str:
    power = min(3, max(0, (size.bit_length() - 1) // 10))
    return f"{size / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def _seconds(value: float) -> str:
    unit, name = next((each for each in _UNITS if value >= each[0]), _UNITS[-1])
    return f"{value / unit:.1f} {name}"


def _machine_file(network: dict[str, float], session: Session, arguments: argparse.Namespace) -> str:
    """A machine file that is like the node's, but for its network."""
    node = read_machine(arguments.like)
    source = (
        f"{Path(arguments.like).name}; network measured by `hpcgnn bench comm` over {session.means.comm}, "
        f"{session.comm.size} ranks, {session.ranks_on_node} on the first node"
    )
    values = {"like": Path(arguments.like).name, "name": arguments.name or node.name, "source": source}
    return toml_text({**values, "network": network})
