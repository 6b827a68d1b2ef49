"""A suite of tests for the author of a plugin: subclass `LayerTests` in a file for pytest (docs/extending.md).

Jobs are real ones: `mpiexec -n P hpcgnn train` on a small graph, and `hpcgnn estimate`. Derivatives and memory are
checked in a process of their own, `python -m hpcgnn.testing`, so that a plugin is registered nowhere else.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

#: Bytes of all communication buffers of a rank in the jobs, in MiB.
BUFFER = "0.25"
_SIZE = ["--nodes", "160", "--features", "6", "--classes", "3"]
_DEGREES = (("graph", "6"), ("dense", "24"))


class LayerTests:
    """The tests of a layer that a plugin registers. A subclass gives `plugin` and `model`, and may give the others.

    Attributes:
        plugin: the file.
        model: the registered name.
        options: further options of `hpcgnn train`.
        ranks: numbers of ranks. All must give the numbers of the first.
        tolerance: largest difference of losses, in double precision.
        keeps_messages: the layer keeps a row for each edge until the gradient, as from_pyg_layer does with this option.
    """

    plugin: Path
    model: str
    options: Sequence[str] = ()
    ranks: Sequence[int] = (1, 2, 3, 4)
    tolerance = 1e-9
    keeps_messages = False

    def test_numbers_do_not_depend_on_the_ranks(self, tmp_path_factory: Any) -> None:
        """Losses of three epochs, and so the gradients, do not depend on the number of ranks."""
        runs = self._runs(tmp_path_factory.getbasetemp())
        losses = {ranks: [row["loss"] for row in run["epochs"]] for ranks, run in runs.items()}
        expected = losses[self.ranks[0]]
        for ranks, found in losses.items():
            apart = max(abs(a - b) for a, b in zip(found, expected, strict=True))
            assert apart <= self.tolerance, f"losses of {ranks} ranks are {found}, of {self.ranks[0]} {expected}"
        assert len(set(expected)) == len(expected), f"the model does not learn: its losses are {expected}"

    def test_bytes_are_those_of_the_estimate(self, tmp_path_factory: Any) -> None:
        """Ranks send as many bytes as `hpcgnn estimate` predicts."""
        runs, folder = self._runs(tmp_path_factory.getbasetemp()), self._folder(tmp_path_factory.getbasetemp())
        ranks = ",".join(map(str, self.ranks))
        _run(*_hpcgnn("estimate"), *self._asked(folder), "--ranks", ranks, "--json", folder / "e.json")
        for predicted in json.loads((folder / "e.json").read_text()):
            sent = runs[predicted["ranks"]]["summary"]
            for name in ("halo_bytes_per_epoch", "allreduce_bytes_per_epoch"):
                assert sent[name] == predicted[name], f"{name} of {predicted['ranks']} ranks"

    def test_communication_stays_in_its_buffers(self, tmp_path_factory: Any) -> None:
        """Rows of other ranks take no more than `--halo-buffer`."""
        for ranks, run in self._runs(tmp_path_factory.getbasetemp()).items():
            found = run["summary"]["halo_buffer_bytes"]
            assert found <= float(BUFFER) * 2**20, f"{ranks} ranks took {found} bytes for messages"

    def test_gradients_are_derivatives(self, tmp_path_factory: Any) -> None:
        """Gradients of the input and of each parameter agree with differences, in double precision."""
        for name, (gradient, difference, scale) in self._checks(tmp_path_factory.getbasetemp())["derivatives"].items():
            apart = abs(gradient - difference)
            assert apart <= 1e-5 * scale, f"the gradient of {name} is {gradient}, the difference {difference}"

    def test_nothing_is_kept_for_each_edge(self, tmp_path_factory: Any) -> None:
        """Four times the edges make autograd keep no more bytes."""
        few, many = self._checks(tmp_path_factory.getbasetemp())["kept_bytes"]
        assert self.keeps_messages or many <= 1.1 * few, f"autograd keeps {few} bytes, and {many} of 4 times the edges"

    @classmethod
    @cache
    def _folder(cls, base: Path) -> Path:
        return _graphs(Path(tempfile.mkdtemp(prefix="layer-", dir=base)), cls.ranks)

    @classmethod
    @cache
    def _runs(cls, base: Path) -> dict[int, dict[str, Any]]:
        """{ranks: {'summary': …, 'epochs': [rows of metrics.jsonl]}}."""
        folder, found = cls._folder(base), {}
        for ranks in cls.ranks:
            directory = folder / f"on-{ranks}"
            launcher = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
            _run(*launcher, *_hpcgnn("train"), *cls._asked(folder), "--epochs", "3", "--run-dir", directory)
            rows = (directory / "metrics.jsonl").read_text().splitlines()
            summary = json.loads((directory / "summary.json").read_text())
            found[ranks] = {"summary": summary, "epochs": [json.loads(row) for row in rows]}
        return found

    @classmethod
    @cache
    def _checks(cls, base: Path) -> dict[str, Any]:
        folder = cls._folder(base)
        graphs = [folder / "graph.h5", folder / "dense.h5"]
        return json.loads(_run(sys.executable, "-P", "-m", "hpcgnn.testing", cls.plugin, cls.model, *graphs))

    @classmethod
    def _asked(cls, folder: Path) -> list[Any]:
        given = ["--graph", folder / "graph.h5", "--plugin", cls.plugin, "--model", cls.model, "--precision", "fp64"]
        return [*given, "--layers", "2", "--hidden", "8", "--dropout", "0", "--halo-buffer", BUFFER, *cls.options]


def _hpcgnn(command: str) -> list[str]:
    return [sys.executable, "-P", "-m", "hpcgnn", command]


def _run(*command: Any, cwd: Path | None = None) -> str:
    """The output of a command. Raises AssertionError with its errors."""
    words = list(map(str, command))
    assert shutil.which(words[0]), f"{words[0]} is not on the PATH"
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def _graphs(folder: Path, ranks: Sequence[int]) -> Path:
    """graph.h5, with maps for these ranks, and dense.h5, with four times the edges."""
    words = [["generate", "planted", "-o", f"{name}.h5", *_SIZE, "--degree", degree] for name, degree in _DEGREES]
    words.append(["partition", "add", "graph.h5", "--ranks", ",".join(map(str, ranks)), "--clusters", "16"])
    program = f"from partition_tools.cli.main import main\nfor words in {words}: assert main(words) == 0"
    _run(sys.executable, "-c", program, cwd=folder)
    return folder


def main(plugin: str, model: str, *graphs: str) -> None:
    """Print {'derivatives': {name: [gradient, difference, scale]}, 'kept_bytes': [of each graph]}."""
    from hpcgnn.interface.load import load
    from hpcgnn.nn.plugin import load_plugin
    from hpcgnn.nn.registry import MODELS

    load_plugin(plugin)
    entry, found, kept = MODELS[model], {}, []
    for number, path in enumerate(graphs):
        graph = load(path, precision="fp64", self_loops=entry.traits().self_loops, edges=True)
        if number == 0:
            found = _derivatives(_layer(entry, graph), graph)
        kept.append(_kept_bytes(_layer(entry, graph), graph))
    print(json.dumps({"derivatives": found, "kept_bytes": kept}))


def _layer(entry: Any, graph: Any) -> Any:
    import torch

    from hpcgnn.nn.spec import PLAIN

    torch.manual_seed(1)
    return entry.layer(PLAIN)(graph.features.shape[1], 4, dtype=torch.float64).eval()


def _derivatives(layer: Any, graph: Any) -> dict[str, tuple[float, float, float]]:
    """Of Σ weights · layer(x) along a random direction of x, and of each parameter."""
    import torch

    step, draw = 1e-6, torch.Generator().manual_seed(2)
    x = torch.randn(graph.features.shape, generator=draw, dtype=torch.float64).requires_grad_()
    weights = torch.randn(layer(graph, x).shape, generator=draw, dtype=torch.float64)
    (layer(graph, x) * weights).sum().backward()
    found = {}
    for name, tensor in (("the input", x), *layer.named_parameters()):
        way = torch.randn(tensor.shape, generator=draw, dtype=tensor.dtype)
        gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        ends = []
        for sign in (1, -1, -1, 1):  # there, back to the other side, and home again
            with torch.no_grad():
                tensor += sign * step * way
                ends.append((layer(graph, x) * weights).sum().item())
        difference = (ends[0] - ends[2]) / (2 * step)
        found[name] = (gradient * way).sum().item(), difference, float(gradient.norm() * way.norm()) + 1e-3
    return found


def _kept_bytes(layer: Any, graph: Any) -> int:
    """Bytes of the different tensors that autograd keeps of a forward pass."""
    import torch

    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = graph.features.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = layer(graph, x)
    assert y.requires_grad, "the layer's output does not depend on its input"
    return sum(kept.values())


if __name__ == "__main__":
    main(*sys.argv[1:])
