"""The cases of a comparison, and their order. Pure: no process is started here."""

import shlex
from dataclasses import dataclass

OURS = "hpcgnn"


@dataclass(frozen=True)
class Case:
    """One line of the tables. name: unique; system: OURS or a peer; threads: per rank; options: of `hpcgnn train`,
    beyond the common ones; variant: whose options."""

    name: str
    system: str
    ranks: int
    threads: int
    options: tuple = ()
    variant: str = ""


def our_cases(ranks, threads, variants):
    """A case for each variant and number of ranks, `threads` in all divided among them. variants: {name: options}."""
    cases = []
    for name, options in variants.items():
        for number in ranks:
            share, whose = max(1, threads // number), f"[{name}]" if name else ""
            cases.append(Case(f"{OURS}{whose} {number}×{share}", OURS, number, share, tuple(options), variant=name))
    return cases


def peer_cases(system, ranks, threads):
    """The case of a peer in one process, for ranks None, or one for each number of ranks."""
    if ranks is None:
        return [Case(system, system, 1, threads)]
    shares = [(number, max(1, threads // number)) for number in ranks]
    return [Case(f"{system} {number}×{share}", system, number, share) for number, share in shares]


def alternation(models, cases, rounds):
    """[(model, round, case)] in the order of measurement: within a round every case once, ours and peers in turn, so
    that a disturbance of the machine falls on all."""
    ours, peers = [c for c in cases if c.system == OURS], [c for c in cases if c.system != OURS]
    turns = [case for pair in zip(ours, peers, strict=False) for case in pair]
    turns += ours[len(peers) :] + peers[len(ours) :]
    return [(model, number, case) for model in models for number in range(rounds) for case in turns]


def parse_variant(text):
    """('mixed', ['--precision', 'mixed']) of "mixed='--precision mixed'". Raises ValueError."""
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
