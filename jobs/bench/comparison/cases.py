"""What is compared with what, and in which order. Pure: no process is started here."""

import shlex
from dataclasses import dataclass, replace

OURS = "hpcgnn"
#: Maps of nodes to ranks that our rows are measured on, as options of `hpcgnn train`; all but the first make large
#: halos.
MAPS = {
    "metis": (),
    "random-clusters": ("--assignment", "super-nodes"),
    "random-nodes": ("--assignment", "random-nodes"),
}
HUGE_PAGES = "huge pages"


@dataclass(frozen=True)
class Case:
    """One line of the tables. name: unique; system: OURS or a peer; threads: per rank; options: of `hpcgnn train`,
    beyond the common ones; variant: whose options; order, allocator: of peers; huge_pages: whether glibc asks for them,
    for any system."""

    name: str
    system: str
    ranks: int
    threads: int
    options: tuple = ()
    order: str = ""
    allocator: str = ""
    variant: str = ""
    huge_pages: bool = False


def our_cases(ranks, threads, variants, maps=("metis",)):
    """A case for each variant, map and number of ranks, `threads` in all divided among them. variants: {name: options};
    maps: of MAPS; one rank needs none."""
    cases = []
    for name, options in variants.items():
        for map_name in maps:
            for number in ranks if map_name == maps[0] else [number for number in ranks if number > 1]:
                share, whose = max(1, threads // number), f"[{name}]" if name else ""
                chosen = () if number == 1 else MAPS[map_name]
                shown = f" {map_name}" if number > 1 and map_name != "metis" else ""
                full = f"{OURS}{whose}{shown} {number}×{share}"
                cases.append(Case(full, OURS, number, share, (*options, *chosen), variant=name))
    return cases


def with_huge_pages(cases, choice):
    """The cases without huge pages, with them, or both. choice: 'without', 'with', 'both'."""
    huge = [replace(case, name=f"{case.name}, {HUGE_PAGES}", huge_pages=True) for case in cases]
    return {"without": cases, "with": huge, "both": [each for pair in zip(cases, huge) for each in pair]}[choice]


def peer_cases(system, threads, orders, allocators):
    """A case for each order of nodes and allocator policy; the first of each is not mentioned in the name."""
    cases = []
    for order in orders:
        for allocator in allocators:
            marks = [f"{order} order"] * (order != orders[0]) + [f"{allocator} allocator"] * (
                allocator != allocators[0]
            )
            cases.append(Case(", ".join([system, *marks]), system, 1, threads, (), order, allocator))
    return cases


def alternation(models, cases, rounds):
    """[(model, round, case)] in the order of measurement: within a round every case once, ours and peers in turn, so
    that a disturbance of the machine falls on all."""
    ours, peers = [c for c in cases if c.system == OURS], [c for c in cases if c.system != OURS]
    turns = [case for pair in zip(ours, peers) for case in pair]
    turns += ours[len(peers) :] + peers[len(ours) :]
    return [(model, number, case) for model in models for number in range(rounds) for case in turns]


def parse_variant(text):
    """('medium', ['--matmul', 'medium']) of "medium='--matmul medium'". Raises ValueError."""
    name, equals, options = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"expected NAME='OPTIONS OF hpcgnn train', got {text!r}")
    return name.strip(), shlex.split(options)


def parse_epochs(texts, default):
    """A function (system, model) -> measured epochs, from `N` or `SYSTEM:MODEL=N`, later ones first. Raises
    ValueError.
    """
    wanted = {}
    for text in texts:
        where, equals, number = text.rpartition("=")
        system, colon, model = where.partition(":")
        if not number.isdigit() or int(number) < 1 or bool(equals) != bool(colon):
            raise ValueError(f"expected N or SYSTEM:MODEL=N with N at least 1, got {text!r}")
        wanted[system, model] = int(number)
    return lambda system, model: wanted.get((system, model), wanted.get(("", ""), default))
