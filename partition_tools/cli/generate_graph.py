"""The sub-command `generate`: synthetic graphs of any size, a function of their parameters alone."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any, cast

from hpcgnn.graphfile.label_files import REGRESSION
from hpcgnn.graphfile.schema import GraphData
from hpcgnn.output_files import check_outputs
from hpcgnn.terminal import tell
from partition_tools.canonical.canonical import ImportOptions, canonical
from partition_tools.canonical.features import DTYPES
from partition_tools.generators import GENERATORS, grid
from partition_tools.generators.grid import GridSpec
from partition_tools.generators.spec import Spec
from partition_tools.graph.writing import summary, write_with_bar
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.working import Resources, add_memory_options, working

#: The random models, and the grid.
MODELS = {**GENERATORS, grid.NAME: grid}
HELP = "make a synthetic graph: communities (planted), Graph500's R-MAT, or a grid"
DESCRIPTION = """Write a grid, or a graph drawn from a random model, with features and labels that a network can learn.
The same parameters and seed give the same file content. Undirected unless --directed; no self loops unless
--self-loops add. Duplicates are dropped and drawn again. So the mean degree is at most --degree and within 1 % of it
except for very dense graphs. Defaults make a task on which a two-layer GCN reaches 80-90 %.
Peak memory: about 40 E + 60 n bytes (planted: 200 n; with --multi-label 8 C n more), or --memory in place of 40 E where
that is less, through files of 16 E bytes; features are made while they are written (32 MiB at F = 128)."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-command's options, one sub-parser per model."""
    models = parser.add_subparsers(required=True, dest="model", metavar="|".join(MODELS))
    for name, module in MODELS.items():
        sub = models.add_parser(name, help=str(module.__doc__).split("\n")[0], description=module.__doc__)
        sub.add_argument("-o", "--output", required=True, metavar="FILE", help="graph file to write")
        for each in dataclasses.fields(_kind(name)):
            if each.metadata.get("model", "") in ("", name):
                _add(sub, each)
        sub.add_argument("--self-loops", choices=("keep", "add"), default="keep", help="add: one to each node")
        if name in GENERATORS:
            sub.add_argument("--feature-dtype", choices=tuple(DTYPES), default="fp32")
        sub.add_argument("--force", action="store_true", help="overwrite an existing file")
        add_memory_options(sub)


def _kind(model: str) -> type[Spec] | type[GridSpec]:
    return Spec if model in GENERATORS else GridSpec


def _add(parser: argparse.ArgumentParser, spec: "dataclasses.Field[Any]") -> None:
    """The option of a field of `Spec`."""
    flag, kind = f"--{spec.name.replace('_', '-')}", spec.metadata.get("read") or cast(Any, spec.type)
    if kind is bool:
        parser.add_argument(flag, action="store_true", help=spec.metadata["help"])
    elif spec.default is dataclasses.MISSING:
        parser.add_argument(flag, type=kind, required=True, metavar="N", help=spec.metadata["help"])
    else:
        shown = ",".join(map("{:g}".format, spec.default)) if isinstance(spec.default, tuple) else spec.default
        text = f"{spec.metadata['help']} (default {shown})"
        parser.add_argument(flag, type=kind, default=spec.default, metavar="N", help=text)


def run(arguments: argparse.Namespace, reporter: Reporter) -> int:
    """The sub-command itself; returns the exit code."""
    kind = _kind(arguments.model)
    names = {field.name for field in dataclasses.fields(kind)}
    spec = kind(**{name: value for name, value in vars(arguments).items() if name in names})
    features = arguments.feature_dtype if isinstance(spec, Spec) else ImportOptions.feature_dtype
    data = generate_graph(
        arguments.model,
        arguments.output,
        spec,
        force=arguments.force,
        options=ImportOptions(self_loops=arguments.self_loops, feature_dtype=features),
        resources=Resources(arguments.memory, arguments.scratch, reporter),
    )
    tell(summary(arguments.output, data))
    return 0


def generate_graph(
    model: str,
    output: str | Path,
    spec: Spec | GridSpec,
    *,
    options: ImportOptions = ImportOptions(),
    force: bool = False,
    resources: Resources | None = None,
) -> GraphData:
    """Draw a graph from MODELS[model] and write it to `output`; returns its `GraphData`."""
    check_outputs({"": output}, force=force)
    with claimed(output), working(output, resources or Resources()) as work:
        work.reporter.stage(f"drawing {spec.num_edges:,} edges between {spec.nodes:,} nodes")
        if isinstance(spec, Spec) and spec.targets:
            options = dataclasses.replace(options, task=REGRESSION)
        data = canonical(MODELS[model].generate(spec, work), options, work)
        write_with_bar(output, data, reporter=work.reporter)
    return data
