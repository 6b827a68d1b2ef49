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
    x = np.zeros((len(nodes), columns), np.float32)
    for row, (_, gloss) in enumerate(rows):
        for word in re.findall("[a-z]+", gloss.lower()):
            x[row, zlib.crc32(word.encode()) % columns] += 1
    edges = np.array([(nodes[letter, offset], here) for here, letter, offset in pointers]).T
    place = np.random.default_rng(0).permutation(len(nodes)) / len(nodes)
    masks = {"train_mask": place < 0.6, "val_mask": (place >= 0.6) & (place < 0.8), "test_mask": place >= 0.8}
    return {"edge_index": edges, "x": np.log1p(x), "y": np.array([label for label, _ in rows]), **masks}


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
