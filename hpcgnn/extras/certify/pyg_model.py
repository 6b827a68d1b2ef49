"""The same steps by a model of the user's own in PyG: one process, the edges of the graph file, float64.

The model gets the weights at the beginning under PyG's names, and its gradients and parameters come back under ours.
"""

import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch

from hpcgnn.app.weights import LIBRARIES, Tensors, check_names
from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.config import Config
from hpcgnn.engine.optim import FlatGradients, learning_rate, make_optimizer
from hpcgnn.errors import ConfigError
from hpcgnn.extras.certify.command import Shape
from hpcgnn.extras.certify.measuring import CertifiedRun, Start
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graphfile.label_files import REGRESSION
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.interface.load import load_graph
from hpcgnn.interface.loaded_graph import TrainingGraph
from hpcgnn.nn.plugin import load_plugin
from hpcgnn.nn.registry import MODELS
from hpcgnn.plan.run_plan import plan
from hpcgnn.tasks.labels import LabelTask, Objective
from hpcgnn.tasks.registry import TASKS, task_traits

#: Options whose other values are no model of PyG's, or draw other numbers there; {name: the value that agrees}.
_ALIKE = {"dropout": 0.0, "attention_dropout": 0.0, "edge_dropout": 0.0, "keep": "exact", "inductive": False}

#: A tensor of batch norms that no result depends on.
_COUNTED = "num_batches_tracked"


def check_pyg(config: Config) -> None:
    """Raise ConfigError where PyG is not installed, or cannot train what the options say."""
    if importlib.util.find_spec("torch_geometric") is None:
        raise ConfigError("--pyg needs PyG, which is not installed: pip install torch_geometric")
    if "pyg" not in LIBRARIES:
        raise ConfigError("--pyg needs hpcgnn/extras/pyg, which is not installed: expected all files of hpcgnn-extras")
    for section, values in config.to_dict().items():
        for name, value in _ALIKE.items():
            if values.get(name, value) != value:
                raise ConfigError(
                    f"--pyg: {name} = {values[name]} acts otherwise in PyG, so that no curves agree: expected "
                    f"--set {section}.{name}={str(value).lower()}"
                )


def network_of(given: str, d_in: int, d_out: int) -> torch.nn.Module:
    """The module of FILE[:NAME]. The file's own errors pass through. Raises ConfigError."""
    path, _, name = given.partition(":")
    try:
        module = load_plugin(path)
    except ConfigError as error:
        raise ConfigError(str(error).replace("--plugin", "--pyg", 1)) from error
    own = [
        word
        for word, each in vars(module).items()
        if isinstance(each, torch.nn.Module)
        or (inspect.isclass(each) and issubclass(each, torch.nn.Module) and each.__module__ == module.__name__)
    ]
    if not hasattr(module, name) if name else len(own) != 1:
        raise ConfigError(
            f"--pyg {given}: expected FILE:NAME with one of the file's models: {', '.join(own) or 'none'}"
        )
    made = getattr(module, name := name or own[0])
    if callable(made) and not isinstance(made, torch.nn.Module):
        _check_call(given, name, made, "features", "classes")
        made = made(d_in, d_out)
    if not isinstance(made, torch.nn.Module):
        raise ConfigError(f"--pyg {given}: expected a torch.nn.Module, or what makes one of (features, classes)")
    _check_call(given, "forward", made.forward, "x", "edge_index", more=("edge_weight", "edge_type", "node_type"))
    return made.double().train()


def _check_call(given: str, name: str, call: Callable[..., Any], *values: str, more: Iterable[str] = ()) -> list[str]:
    """Return those of `more` that a function of the user's takes. Raises ConfigError where others are missing."""
    signature = inspect.signature(call)
    taken = [each for each in more if each in signature.parameters]
    try:
        signature.bind(*values, **dict.fromkeys(taken))
    except TypeError:
        expected = ", ".join([*values, *taken])
        raise ConfigError(f"--pyg {given}: expected {name}({expected}), got {name}{signature}") from None
    return taken


def renamed(theirs: Iterable[str], ours: Iterable[str]) -> dict[str, str]:
    """{their name: name in `convs` and `norms`}: each layer is their next module that has all its tensors."""
    free, parts = dict.fromkeys(theirs), dict[str, dict[str, str]]()
    for name in ours:
        found = re.match(r"(\w+(?:\.\d+)?)\.(?:module\.)?(.*)", name)
        if found is not None and found[2] != _COUNTED:
            parts.setdefault(found[1], {})[found[2]] = name
    modules = dict.fromkeys(name[: dot.start()] for name in free for dot in re.finditer(r"\.", name))
    names: dict[str, str] = {}
    for part, tensors in parts.items():
        module = next((each for each in (part, *modules) if all(f"{each}.{leaf}" in free for leaf in tensors)), None)
        for leaf, name in tensors.items() if module is not None else ():
            names[f"{module}.{leaf}"] = name
            del free[f"{module}.{leaf}"]
    return {name: name for name in free} | names


class PygShape(Shape):
    """In place of a number of ranks."""

    def __str__(self) -> str:
        return "PyG"


class PygModel:
    """The network FILE[:NAME] of PyG's, with the names and shapes that its weights have here. config: resolved."""

    def __init__(self, config: Config, given: str) -> None:
        """Raises HpcgnnError for a network, or a run, that cannot agree; what is known before anything is trained."""
        with GraphFile(config.data.graph) as file:
            meta = file.meta
        decided = plan(config.replace(precision="fp64", halo_dtype="fp32"), meta)
        self.config, self.uuid, self.given, spec = decided.config, meta.uuid, given, decided.spec
        if not task_traits(self.config.task.task).labels or spec.changing:
            raise ConfigError("--pyg: expected a task of labels of nodes, and inputs that are the same in all steps")
        self._library, self._spec = LIBRARIES["pyg"], spec
        if reason := self._library.reason_against(spec, meta, self.config):
            raise ConfigError(f"--pyg: {reason} (see docs/definitions.md)")
        self.network = network_of(given, spec.d_in, spec.classes)
        self._model = MODELS[spec.options.model].build(spec)
        self._template, self._flat = self._model.state_dict(), FlatGradients(self._model)
        exported = self._library.export(spec, self._template)
        self._names = renamed(self.network.state_dict(), exported)
        check_names({name: each for name, each in exported.items() if not name.endswith(_COUNTED)}, self._named({}))

    def begin(self, start: Start) -> list[dict[str, Any]]:
        """Give the network the weights of `start`. Returns its {'params'}: of the first layer, and of the others."""
        given = self._library.export(self._spec, {name: start[name].double() for name in self._template})
        values = {name: given[own] for name, own in self._names.items() if own in given}
        self.network.load_state_dict(values, strict=False)
        groups: tuple[list[Any], list[Any]] = ([], [])
        for name, parameter in self.network.named_parameters():
            groups[not self._names[name].startswith("convs.0.")].append(parameter)
        return [{"params": each} for each in groups if each]

    def ours(self, gradients: bool) -> torch.Tensor:
        """float64 (total,): the gradients or the parameters, in the order of a CertifiedRun."""
        theirs = self.network.named_parameters()
        grads = {name: cast(torch.Tensor, each.grad) for name, each in theirs} if gradients else {}
        found = self._library.take(self._spec, self._named(grads), self._template)
        if not gradients:
            return torch.cat([found[name].flatten() for name, _ in self._model.named_parameters()])
        for name, parameter in self._model.named_parameters():
            cast(torch.Tensor, parameter.grad).copy_(found[name])
        return self._flat.flat.clone()

    def _named(self, values: Mapping[str, torch.Tensor]) -> Tensors:
        """The network's state under PyG's usual names. values: in place of some tensors, by its own names."""
        state = self.network.state_dict() | dict(values)
        return {self._names[name]: each for name, each in state.items() if not name.endswith(_COUNTED)}


def train_with_pyg(model: PygModel, steps: int, start: Start) -> CertifiedRun:
    """Train from the weights `start`. Raises HpcgnnError for a model that cannot agree."""
    config, network, comm = model.config, model.network, SoloCommunicator()
    first, *others = model.begin(start)
    optim = config.optim
    first["weight_decay"] = optim.weight_decay
    for group in others:
        group["weight_decay"] = optim.weight_decay if optim.weight_decay_layers == "all" else 0.0
    graph = load_graph(comm, config.replace(self_loops="keep"), widest=1)
    outputs = _forward(model, graph)
    scaled = config.task.task == REGRESSION and config.task.target_scale == "standard"
    task, scale = cast(LabelTask, TASKS[config.task.task]), graph.scale if scaled else None
    objective = Objective(task, graph._local, comm, graph.arena, config.task, scale)
    if not torch.allclose(outputs(), outputs()):
        raise ConfigError(f"--pyg {model.given}: two passes of the model differ, as with dropout; expected p = 0")
    gradients, optimizer = FlatGradients(network), make_optimizer([first, *others], optim)
    losses, kept = list[float](), list[torch.Tensor]()
    for epoch in range(steps):
        optimizer.set_learning_rate(learning_rate(epoch, optim))
        gradients.zero()
        loss = objective.local_loss(outputs())
        loss.backward()
        losses.append(loss.item())
        kept[1:] = [model.ours(gradients=True)]
        gradients.clip(optim.clip_norm)
        optimizer.step()
    sent = {"bytes": dict[str, int](), "messages": dict[str, int]()}
    ends, last = (kept[0], kept[-1]), model.ours(gradients=False)
    return CertifiedRun(PygShape(1), config, model.uuid, losses, ends, last, {}, {}, sent, {})


def _forward(model: PygModel, graph: TrainingGraph) -> Callable[[], torch.Tensor]:
    """The network's pass over the graph of one process, with weights and types of edges if it takes them."""
    x, local, network = graph.features, graph._local, model.network
    if isinstance(x, SparseRows):
        x = torch.sparse_csr_tensor(x.indptr, x.indices.long(), x.data, x.shape).to_dense()
    edges, kept = local.inward.all_edges, local.inward.edges
    ends = torch.stack([edges.columns, edges.rows]).long()
    more = {"edge_weight": edges.weight, "node_type": local.node_type}
    if kept is not None and kept.type is not None and edges.edge is not None:
        more["edge_type"] = kept.type.long()[edges.edge.long()]
    there = [name for name, each in more.items() if each is not None]
    taken = _check_call(model.given, "forward", network.forward, "x", "edge_index", more=there)
    return lambda: network(x, ends, **{name: more[name] for name in taken})
