"""What the benches of single kernels share: their options, a skewed graph, and repetitions by turns."""

import argparse
import statistics
import time

import torch


def parser_of(doc: str, epilog: str, nodes: int, repetitions: int) -> argparse.ArgumentParser:
    """The parser with the options of every bench. epilog: lines of examples."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=f"examples:\n{epilog}"
    )
    parser.add_argument("--nodes", type=int, default=nodes, help="rows; they should be larger than the caches")
    parser.add_argument(
        "--repetitions", type=int, default=repetitions, help="after one that warms up and does not count"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: processor time of all threads / threads, for machines whose cores are shared with other work",
    )
    return parser


def add_graph_options(parser: argparse.ArgumentParser, degree: float, order: str) -> None:
    """The options of `skewed_graph`."""
    parser.add_argument("--degree", type=float, default=degree, help="mean number of in-edges per node")
    parser.add_argument(
        "--order",
        choices=["random", "clustered"],
        default=order,
        help="random: sources anywhere (no locality at all); clustered: 9 in 10 within the same 1/400 of the nodes, as "
        "METIS gives",
    )
    parser.add_argument("--seed", type=int, default=0)


def skewed_graph(nodes: int, degree: float, order: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(indptr, indices) whose in- and out-degrees have a Pareto tail of exponent 2.1, both with the same popular
    nodes."""
    generator = torch.Generator().manual_seed(seed)
    popularity = torch.rand(nodes, generator=generator, dtype=torch.float64).clamp_min(1 / nodes) ** (-1 / 1.1)
    degrees = (popularity * (degree * nodes / popularity.sum())).round().to(torch.int64)
    indptr = torch.zeros(nodes + 1, dtype=torch.int64)
    torch.cumsum(degrees, 0, out=indptr[1:])
    num_edges = int(indptr[-1])
    draw = torch.rand(num_edges, generator=generator, dtype=torch.float64)
    indices = torch.searchsorted(popularity.cumsum(0) / popularity.sum(), draw).clamp_max(nodes - 1)
    if order == "clustered":
        size = max(1, nodes // 400)
        base = torch.repeat_interleave(torch.arange(nodes), degrees) // size * size
        near = (base + torch.randint(size, (num_edges,), generator=generator)).clamp_max(nodes - 1)
        indices = torch.where(torch.rand(num_edges, generator=generator) < 0.9, near, indices)
    return indptr, indices.to(torch.int32)


def seconds(function, clock: str, threads: int) -> float:
    start = time.perf_counter(), time.process_time()
    function()
    wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
    return wall if clock == "wall" else cpu / threads


def spread(values: list[float], digits: int) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def measure(contestants: dict, options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds per contestant, repetitions alternating; the first round is thrown away."""
    times = {name: [] for name in contestants}
    for repetition in range(options.repetitions + 1):
        for name, function in contestants.items():
            elapsed = seconds(function, options.clock, options.threads)
            if repetition:
                times[name].append(elapsed)
    return times
