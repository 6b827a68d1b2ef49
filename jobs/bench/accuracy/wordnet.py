#!/usr/bin/env python3
"""A real graph for the benches of accuracy: WordNet 3.0 (Fellbaum, 1998), from its files data.noun, data.verb, …

    python jobs/bench/accuracy/wordnet.py /usr/share/wordnet -o wordnet.npz    # Debian's package wordnet-base

A node is a set of synonyms, an edge a pointer between two (hypernym, part, antonym and others), and a class one of the
45 files that lexicographers sorted the sets into. Features are counts of the words of the gloss, of which a hash
chooses the column. 60, 20 and 20 % of the nodes, drawn with seed 0, are for training, validation and test. archives.py
describes the archive.
"""

import argparse
import re
import zlib
from pathlib import Path

import numpy as np

PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


def counts_of(words, columns):
    """float32 (columns,): log(1 + counts) of words (bytes), of which a hash chooses the column."""
    row = np.zeros(columns, np.float32)
    for word in words:
        row[zlib.crc32(word) % columns] += 1
    return np.log1p(row)


def drawn_masks(n):
    """{name: bool (n,)}: 60, 20 and 20 % of the nodes, drawn with seed 0."""
    place = np.random.default_rng(0).permutation(n) / n
    return {"train_mask": place < 0.6, "val_mask": (place >= 0.6) & (place < 0.8), "test_mask": place >= 0.8}


def read(folder, columns):
    """{name: array} of the archive. columns: of features."""
    nodes, pointers, rows = {}, [], []
    for part, letter in PARTS.items():
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if line.startswith(" "):  # the licence
                continue
            data, _, gloss = line.partition("|")
            fields = data.split()
            here = nodes[letter, fields[0]] = len(nodes)
            at = 4 + 2 * int(fields[3], 16)  # after the words
            count = int(fields[at])
            pointers += [(here, fields[at + 3 + 4 * k], fields[at + 2 + 4 * k]) for k in range(count)]
            rows.append((int(fields[1]), gloss))
    x = np.stack([counts_of(re.findall(b"[a-z]+", gloss.lower().encode()), columns) for _, gloss in rows])
    edges = np.array([(nodes[letter, offset], here) for here, letter, offset in pointers]).T
    return {"edge_index": edges, "x": x, "y": np.array([label for label, _ in rows]), **drawn_masks(len(nodes))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with data.noun, data.verb, data.adj and data.adv")
    parser.add_argument("-o", "--output", type=Path, default=Path("wordnet.npz"), help="default: %(default)s")
    parser.add_argument("--columns", type=int, default=128, help="of features (default: 128)")
    options = parser.parse_args()
    arrays = read(options.folder, options.columns)
    np.savez_compressed(options.output, **arrays)
    n, e, classes = len(arrays["y"]), arrays["edge_index"].shape[1], len(np.unique(arrays["y"]))
    print(f"{options.output}: {n:,} nodes, {e:,} pointers, {classes} classes")


if __name__ == "__main__":
    main()
