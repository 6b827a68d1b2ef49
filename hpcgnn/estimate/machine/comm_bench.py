"""`hpcgnn bench comm`: a comparison of these ranks' transports, as a table and for machine files."""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from hpcgnn.app.bring_up import opened
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.launch.second_transport import communicator_beside, missing_on
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

# One more transport is one more column.
BESIDE = ("torch", "oneccl")
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
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for name, transport in _transports(session, missing):
        _say(comm, f"{name}: measuring")
        found[name] = _measure(transport, local, apart, session.ranks_on_node, arguments)
    if comm.rank != 0:
        return
    record = {
        "ranks": comm.size,
        "ranks_per_node": session.ranks_on_node,
        "graph": arguments.graph,
        "partition": partition,
        "width": arguments.width,
        "transports": found,
        "missing": missing,
    }
    tell(_table(record))
    if arguments.json:
        write(arguments.json, json.dumps(record, indent=1) + "\n")
    if arguments.output:
        write(arguments.output, _machine_file(found[session.means.comm]["network"], session, arguments))


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


def _transports(session: Session, missing: dict[str, str]) -> Iterator[tuple[str, Communicator]]:
    """The session's own transport, and the others that all ranks have. missing: filled with the reasons of the rest."""
    own = session.means.comm
    yield own, session.comm
    for name in BESIDE:
        if name == own:
            continue
        reason = missing_on(session, name)
        if reason is not None:
            missing[name] = reason
            continue
        with contextlib.closing(communicator_beside(session, name)) as transport:
            yield name, transport


def _measure(
    comm: Communicator, local: LocalGraph | None, apart: int, ranks_on_node: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """All figures of a transport, in seconds and bytes. Collective."""
    result: dict[str, Any] = {"network": asdict(network_of(comm, apart, ranks_on_node))}
    result["message_seconds"] = {str(size): ring(comm, size, apart)[0] for size in SIZES} if comm.size > 1 else {}
    result["reduction_seconds"] = {str(size): reduction(comm, size) for size in _SUMMED}
    if local is not None:
        result["halo"] = asdict(halo(comm, local, arguments.halo_buffer << 20, arguments.width))
    return result


def _table(record: dict[str, Any]) -> str:
    """A line for each figure, a column for each transport."""
    found, lines = record["transports"], []

    def add(what: str, values: list[str]) -> None:
        lines.append([what, *values])

    columns = list(found.values())
    for size in columns[0]["message_seconds"]:
        add(f"message of {_bytes(int(size))}", [_seconds(each["message_seconds"][size]) for each in columns])
        if int(size) >= MESSAGE:
            speeds = [int(size) / each["message_seconds"][size] / 1e9 for each in columns]
            add("  GB/s of a rank, each way", [f"{speed:.2f}" for speed in speeds])
    for size in columns[0]["reduction_seconds"]:
        add(
            f"sum over all ranks of {_bytes(int(size))}",
            [_seconds(each["reduction_seconds"][size]) for each in columns],
        )
    add("GB/s of a node, each way", [f"{each['network']['bandwidth'] / 1e9:.2f}" for each in columns])
    add("  share left where all send to all", [f"{each['network']['bisection']:.2f}" for each in columns])
    if "halo" in columns[0]:
        one = columns[0]["halo"]
        what = f"halo, {_bytes(one['bytes'])} in {one['messages']} messages and {one['turns']} turns"
        add(what, [_seconds(each["halo"]["seconds"]) for each in columns])
    nodes = f"{record['ranks']} ranks, {record['ranks_per_node']} on the first node"
    text = tabulate(lines, [nodes, *found], tablefmt="simple", disable_numparse=True, stralign="right")
    return "\n".join([text, *(f"not here: {name} ({reason})" for name, reason in record["missing"].items())])


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


def _say(comm: Communicator, text: str) -> None:
    if comm.rank == 0:
        print(text, file=sys.stderr, flush=True)
