"""Damage to files for property-based tests: one bit flipped, and perhaps the end lost."""

from hypothesis import strategies as st


def damages(size):
    """Strategies of (number of the bit, where the file ends or None) for a file of this many bytes."""
    return st.integers(0, size * 8 - 1), st.one_of(st.none(), st.integers(0, size))


def damaged(data, bit, end):
    """The bytes with this bit flipped, up to `end`."""
    result = bytearray(data)
    result[bit // 8] ^= 1 << bit % 8
    return bytes(result[:end])
