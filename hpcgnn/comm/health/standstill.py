"""The message of a job that stands still: the missing ranks, and the waits of the others."""

from collections.abc import Collection, Mapping

from hpcgnn.comm.health.heartbeat import HeartbeatRecord


def describe_standstill(
    records: Mapping[int, HeartbeatRecord], silent: Collection[int], size: int, idle: float, limit: float
) -> str:
    """Return the message.

    Args:
        records: {rank: HeartbeatRecord} of the known ranks.
        silent: the ranks among them without a sign of life.
        size: number of ranks of the job.
        idle: seconds without any progress.
        limit: seconds of --watchdog.
    """
    working = {rank for rank, record in records.items() if not record.waits}.difference(silent)
    arrived = set(records).difference(silent, working)
    unseen, parts = size - len(records), []
    if silent:
        parts.append(f"rank {names(silent, records)} shows no sign of life (stopped, or its node is lost)")
    parts += [f"rank {names({rank}, records)} works at something else" for rank in sorted(working)[:4]]
    if not parts and unseen:
        parts.append(f"a rank of another node, none of this one: of {unseen} ranks nothing is known here")
    elif not parts:
        parts.append("none: all wait, for different things, which is a fault of the program")
    places: dict[str, list[int]] = {}
    for rank in sorted(arrived):
        places.setdefault(records[rank].at, []).append(rank)
    waiting = "; ".join(f"rank {names(ranks, {})} for {at!r}" for at, ranks in places.items())
    return (
        f"hpcgnn: no rank has got on for {idle:.0f} s (--watchdog {limit:g}); the job ends. Did not "
        f"arrive: {'; '.join(parts)}. Waiting: {waiting}. Continue with --resume"
    )


def names(ranks: Collection[int], records: Mapping[int, HeartbeatRecord]) -> str:
    """Describe the first few ranks with their nodes: '0, 2 (node1, last at "load")'."""
    named = []
    for rank in sorted(ranks)[:8]:
        record = records.get(rank)
        named.append(str(rank) if record is None else f"{rank} ({record.host}, last at {record.at!r})")
    return ", ".join(named) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
