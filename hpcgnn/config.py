"""The configuration of a run: frozen, checked when made, and written in full into every run directory.

The options are declared in options/. The command line, the TOML file and the error that names the nearest valid key
are all derived from those declarations. Precedence: command line, then file, then default.
"""

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import tomli_w

from hpcgnn.declaring import LARGEST
from hpcgnn.errors import ConfigError
from hpcgnn.options import SECTIONS, DataConfig, ModelConfig, OptimConfig, RunConfig, ScheduleConfig, TaskConfig
from hpcgnn.options.inputs import inputs_of
from hpcgnn.options.link_split import check_link_split
from hpcgnn.options.task import LINKS
from hpcgnn.suggestions import suggest

# Names that the registries offer: {"models": {name: the options `by_model` that it uses, None where not known},
# "norms": names, "schedules": names}.
Choices = Mapping[str, Any]
# The schedules under which the input may change from step to step.
LEARN_FEATURES = ("sar", "bns", "stale")
Number = TypeVar("Number", int, float)
# Backends of torch.distributed by which one rank can send to another while the rest do something else.
PAIRWISE = ("gloo", "mpi")
SECTION_OF = {f.name: section for section, kind in SECTIONS.items() for f in fields(kind)}


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole configuration, one dataclass per section."""

    data: DataConfig
    task: TaskConfig
    model: ModelConfig
    optim: OptimConfig
    schedule: ScheduleConfig
    run: RunConfig

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """{section: {key: value}}, every option with its value."""
        return dataclasses.asdict(self)

    def to_toml(self) -> str:
        """The text of a TOML file that gives this configuration again, into a run directory of its own."""
        sections = self.to_dict()
        del sections["run"]["run_dir"], sections["run"]["resume"]
        return tomli_w.dumps(sections)

    def replace(self, **values: Any) -> Self:
        """A copy with some options (by their flat names) changed."""
        changed = {section: {k: v for k, v in values.items() if SECTION_OF[k] == section} for section in SECTIONS}
        return dataclasses.replace(
            self,
            **{section: dataclasses.replace(getattr(self, section), **new) for section, new in changed.items() if new},
        )


def make_config(values: Mapping[str, Any], choices: Choices, origin: str = "the command line") -> Config:
    """A checked Config from flat values {key: value}; missing keys take their defaults.

    choices: {'models': names, 'norms': names, 'schedules': names} for the registries. Raises ConfigError.
    """
    parts: dict[str, Any] = {}
    for section, kind in SECTIONS.items():
        given = {}
        for declared in fields(kind):
            if declared.name in values:
                given[declared.name] = _checked(declared, values[declared.name], choices, origin)
            elif declared.metadata["required"]:
                raise ConfigError(f"--{declared.name.replace('_', '-')} is required: {declared.metadata['help']}")
        parts[section] = kind(**given)
    config = Config(**parts)
    check_schedule(config)
    check_inputs(config)
    check_links(config)
    check_hops(config)
    check_precision(config)
    epochs_to_trace(config.run.trace)
    check_backend(config)
    return config


def _checked(declared: Field[Any], value: Any, choices: Choices, origin: str) -> Any:
    flag, kind, rules = "--" + declared.name.replace("_", "-"), cast(type, declared.type), declared.metadata
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= LARGEST[float] else float("inf")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
        raise ConfigError(f"{flag}: expected {wanted}, got {value!r} ({origin})")
    allowed = choices[rules["choices"]] if isinstance(rules["choices"], str) else rules["choices"]
    if allowed is not None and value not in allowed:
        raise ConfigError(f"{flag}: expected one of {', '.join(allowed)}, got {value!r} ({origin})")
    if kind in LARGEST:
        _check_range(flag, value, rules, LARGEST[kind], origin)
    return value


def _check_range(flag: str, value: Any, rules: Mapping[str, Any], largest: float, origin: str) -> None:
    """Raise ConfigError for a number outside its range. Comparisons with NaN are false."""
    least, below = rules["least"], rules["below"]
    most = largest if rules["most"] is None else rules["most"]
    if value >= least and (value < below if below is not None else value <= most):
        return
    upper = f" and below {below}" if below is not None else ""
    if not upper and (rules["most"] is not None or value > most):
        upper = f" and at most {most}"
    raise ConfigError(f"{flag}: expected at least {least}{upper}, got {value} ({origin})")


def check_precision(config: Config) -> None:
    """Raise ConfigError where --precision mixed or --matmul has no meaning."""
    model, schedule = config.model, config.schedule
    if config.run.matmul != "highest" and config.run.precision == "fp64":
        raise ConfigError(
            f"--matmul {config.run.matmul} rounds the factors of fp32 products, got --precision fp64; leave one of "
            "them out"
        )
    if schedule.reduce_dtype != "fp32" and config.run.precision == "fp64":
        raise ConfigError(
            f"--reduce-dtype {schedule.reduce_dtype} rounds gradients of fp32, got --precision fp64; leave one of them "
            "out"
        )
    if config.run.precision != "mixed":
        return
    if model.model not in ("gcn", "sage") or model.aggregator != "mean":
        raise ConfigError(
            f"--precision mixed: expected --model gcn, or sage with --aggregator mean, got --model {model.model} with "
            f"--aggregator {model.aggregator}; use --precision fp32"
        )
    if model.jumping != "none":
        raise ConfigError(
            f"--precision mixed: expected --jumping none, got {model.jumping}, whose map sees hidden states in fp32; "
            "use --precision fp32"
        )
    if schedule.schedule != "sar" or schedule.halo_dtype not in ("fp32", "bf16"):
        raise ConfigError(
            f"--precision mixed: expected --schedule sar, which then exchanges bf16, got {schedule.schedule} with "
            f"--halo-dtype {schedule.halo_dtype}; use --precision fp32"
        )


def check_inputs(config: Config) -> None:
    """Raise ConfigError for --features that cannot be read, or that do not go together with other options."""
    if inputs_of(config.task.features).labels:
        raise ConfigError(
            f"--features {config.task.features}: labels become inputs by --label-reuse, with the share of the training "
            "nodes that are given theirs in an epoch, such as 0.5"
        )
    if config.task.label_reuse and config.schedule.schedule not in LEARN_FEATURES:
        raise ConfigError(
            f"--label-reuse {config.task.label_reuse:g} draws other labels in every step, and --schedule "
            f"{config.schedule.schedule} needs an input that does not change; expected {' or '.join(LEARN_FEATURES)}"
        )
    if config.task.label_reuse and config.model.keep_input == "always":
        raise ConfigError(
            f"--keep-input always keeps an aggregate of features that do not change, got --label-reuse "
            f"{config.task.label_reuse:g}; leave one of them out"
        )
    if config.model.edge_dropout and config.model.keep_input == "always":
        raise ConfigError(
            "--keep-input always keeps an aggregate that does not change, got --edge-dropout "
            f"{config.model.edge_dropout:g}, which leaves out other edges in every epoch; leave one of them out"
        )
    learned = inputs_of(config.task.features).learned
    if config.data.inductive and (learned or config.task.label_reuse):
        flag = f"--features {config.task.features}" if learned else f"--label-reuse {config.task.label_reuse:g}"
        raise ConfigError(
            f"--inductive trains on training nodes alone, and {flag} gives each node of the whole graph something of "
            "its own in training; leave one of them out"
        )
    if config.data.inductive and config.task.task == LINKS:
        raise ConfigError(
            f"--inductive trains on training nodes alone, and --task {LINKS} on training edges; leave one of them out"
        )
    if config.data.inductive and config.schedule.schedule != "sar":
        raise ConfigError(
            f"--inductive is for --schedule sar, got {config.schedule.schedule}: expected sar, or no --inductive"
        )
    if learned and config.schedule.schedule not in LEARN_FEATURES:
        raise ConfigError(
            f"--features {config.task.features}: learned features change in every step, and --schedule "
            f"{config.schedule.schedule} needs an input that does not; expected {' or '.join(LEARN_FEATURES)}"
        )
    if learned and config.optim.ema:
        raise ConfigError(
            f"--ema {config.optim.ema:g} averages the parameters of a model, and not the learned features of "
            f"--features {config.task.features}; leave one of them out"
        )
    if learned and config.model.keep_input == "always":
        raise ConfigError(
            f"--keep-input always keeps an aggregate of features that do not change, got --features "
            f"{config.task.features}; leave one of them out"
        )


def check_links(config: Config) -> None:
    """Raise ConfigError for --link-split that cannot be read, and for schedules that cannot learn links."""
    check_link_split(config.task.link_split)
    if config.task.task == LINKS and config.schedule.schedule != "sar":
        raise ConfigError(
            f"--task {LINKS} is learned from the rows of both ends of every edge in every step: expected --schedule "
            f"sar, got {config.schedule.schedule}"
        )


def check_hops(config: Config) -> None:
    """Raise ConfigError for what --model sign, which sees the columns of a file and nothing of other ranks, has no use
    for.
    """
    for flag, given in (
        (f"--schedule {config.schedule.schedule}", config.schedule.schedule != "sar"),
        (f"--features {config.task.features}", config.task.features != "file"),
        (f"--label-reuse {config.task.label_reuse:g}", config.task.label_reuse > 0),
        ("--inductive", config.data.inductive),
    ):
        if given and config.model.model == "sign":
            raise ConfigError(
                f"{flag} is not for --model sign, which learns from the columns of the graph file alone, propagated "
                "over the whole graph before, and exchanges nothing but gradients of parameters; leave it out"
            )


def check_schedule(config: Config) -> None:
    """Raise ConfigError for options that do not go together with the schedule."""
    options = config.schedule
    for declared in fields(options):
        owners = declared.metadata["schedules"] or (options.schedule,)
        if options.schedule not in owners and getattr(options, declared.name) != declared.default:
            raise ConfigError(
                f"--{declared.name.replace('_', '-')} belongs to --schedule {owners[0]}, got --schedule "
                f"{options.schedule}; leave it out, or choose that schedule"
            )
    stages = 1 if config.model.model == "sgc" else config.model.layers
    per_layer("--layer-epochs", options.layer_epochs, stages, int, 1, config.optim.epochs)
    per_layer("--layer-lr", options.layer_lr, stages, float, 0.0, config.optim.lr)
    listed("--drop-ranks", options.drop_ranks, int, 0)
    if options.schedule == "lazy" and config.model.model == "appnp":
        raise ConfigError(
            "--schedule lazy trains layers one by one on what their neighbours have sent once, and the hops of --model "
            "appnp change in every step: expected --schedule sar, bns or stale"
        )
    if options.schedule == "lazy" and config.model.jumping != "none":
        raise ConfigError(
            f"--jumping {config.model.jumping} trains all layers together with a map that sees them, and --schedule "
            "lazy trains them one by one: expected --jumping none, or another schedule"
        )
    if options.finetune_lr and not options.finetune:
        raise ConfigError("--finetune-lr needs --finetune: expected a number of exact epochs of at least 1, got 0")
    if options.schedule == "lazy" and options.halo_dtype != "fp32":
        raise ConfigError(
            f"--halo-dtype {options.halo_dtype} is not for --schedule lazy, which sends a layer's input once and "
            "keeps it: expected fp32, or another schedule"
        )
    if options.schedule != "sar" and options.halo_dtype == "auto":
        raise ConfigError(
            "--halo-dtype auto is for --schedule sar, whose exchanges are alike in every epoch: expected int8, int4 or "
            f"int2 with --schedule {options.schedule}"
        )
    if options.assignment != "metis" and config.data.partition:
        raise ConfigError(
            f"--assignment {options.assignment} makes a map of its own, got --partition {config.data.partition} "
            "besides; leave one of them out"
        )
    if options.schedule != "tma":
        return
    if bool(options.average_steps) == bool(options.average_seconds):
        raise ConfigError(
            "--schedule tma needs one of --average-steps N (at least 1) and --average-seconds X (above 0), got "
            f"{options.average_steps} and {options.average_seconds:g}"
        )
    if options.average_steps > config.optim.epochs:
        raise ConfigError(
            f"--average-steps {options.average_steps} is longer than the run: expected 1 to --epochs = "
            f"{config.optim.epochs}"
        )
    averages = -(-config.optim.epochs // max(1, options.average_steps))
    if options.correct_every > averages:
        raise ConfigError(
            f"--correct-every {options.correct_every} is longer than the run: expected 0, or 1 to its {averages} "
            "averages"
        )


def check_backend(config: Config) -> None:
    """Raise ConfigError for what needs messages between two ranks alone, where the transport has none."""
    run = config.run
    if run.comm == "mpi" or run.comm == "torch" and run.torch_backend in PAIRWISE:
        return
    named = "--comm oneccl" if run.comm == "oneccl" else f"--torch-backend {run.torch_backend}"
    for wanted, flag in ((config.schedule.schedule == "tma", "--schedule tma"), (bool(run.trace), "--trace")):
        if wanted:
            raise ConfigError(
                f"{flag} sends messages between two ranks alone, which {named} cannot: expected --comm mpi, "
                f"or --comm torch with --torch-backend {' or '.join(PAIRWISE)}"
            )


def epochs_to_trace(text: str) -> tuple[int, int]:
    """(first, last) epoch of --trace, from 1; the last is 0 where there is none. Raises ConfigError."""
    first, dash, last = text.partition("-")
    ends = [int(word) if word.isascii() and word.isdigit() else 0 for word in (first, last)]
    if not text:
        return 1, 0
    if not dash:  # a number of epochs: the first makes what lasts, and is like no other
        ends = [2, ends[0] + 1]
    if not 1 <= ends[0] <= ends[1]:
        raise ConfigError(
            f"--trace: expected a number of epochs, such as 3, or the first and the last as in 2-4, got {text!r}"
        )
    return ends[0], ends[1]


def listed(flag: str, text: str, kind: type[Number], least: float) -> list[Number]:
    """The numbers of a comma list, [] for an empty one. Raises ConfigError."""
    try:
        values = [kind(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        values = [kind(least - 1)]
    if not all(least <= value <= LARGEST[kind] for value in values):
        wanted = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{flag}: expected {wanted} of at least {least}, joined by commas, got {text!r}")
    return values


def per_layer(flag: str, text: str, layers: int, kind: type[Number], least: float, default: Number) -> list[Number]:
    """One value for each layer from a comma list of as many, a single value for all, or the default. Raises
    ConfigError.
    """
    values = listed(flag, text, kind, least) or [default]
    if len(values) not in (1, layers):
        raise ConfigError(
            f"{flag}: expected one number, or {layers} for the {layers} layers, got {len(values)}: {text!r}"
        )
    return values if len(values) == layers else values * layers


def read_toml(path: str | Path) -> dict[str, Any]:
    """Flat values of a TOML file with the sections of `SECTIONS`; an unknown key is an error that names the nearest
    valid one.
    """
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}; expected a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    values = {}
    for section, entries in document.items():
        if section not in SECTIONS or not isinstance(entries, dict):
            home = f"[{SECTION_OF[section]}], where {section!r} belongs" if section in SECTION_OF else ""
            close = difflib.get_close_matches(section, SECTIONS, 1)
            wanted = home or (f"{close[0]!r} perhaps, one of: " if close else "one of: ") + ", ".join(SECTIONS)
            raise ConfigError(f"{path}: unknown section [{section}]; expected {wanted}")
        known = [f.name for f in fields(SECTIONS[section])]
        for key, value in entries.items():
            if key not in known:
                raise ConfigError(f"{path}: unknown key {key!r} in [{section}]{_meant(key, section, known)}")
            values[key] = value
    return values


def _meant(key: str, section: str, known: Sequence[str]) -> str:
    name, remark = suggest(key, SECTION_OF)
    if remark:
        return f": {remark}"
    if name and SECTION_OF[name] != section:
        return (
            f": expected {name!r} in [{SECTION_OF[name]}]" if name != key else f": it belongs in [{SECTION_OF[name]}]"
        )
    return f"; expected {f'{name!r} perhaps, ' if name else ''}one of: {', '.join(known)}"
