#!/usr/bin/env python3
"""A real graph for the benches of accuracy: the files of the Linux kernel, and which of them include which.

    python jobs/bench/accuracy/linux.py /usr/src/linux-source-6.1.tar.xz -o linux.npz    # Debian: linux-source-6.1

A node is a C or assembler file, and an edge leads from an included file to the one that includes it, and back. A class
is a subsystem: the first folder of the path, and the second, too, where it has LEAST files or more. Features are counts
of the words in the first 4 KiB of a file, without the includes, of which a hash chooses the column. 60, 20 and 20 % of
the nodes, drawn with seed 0, are for training, validation and test. archives.py describes the archive.
"""

import argparse
import posixpath
import re
import sys
import tarfile
from collections import Counter
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # shared parts

import numpy as np
from archives import counts_of, drawn_masks

LEAST = 300
INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"]([^>"]+)[>"].*$', re.MULTILINE)
#: Where includes are looked for, after the folder of the file itself.
FOLDERS = ("include", "include/uapi", "arch/x86/include", "arch/x86/include/uapi", "")


def read(path, columns):
    """({path of a file: number}, [its includes], features (n, columns))."""
    files, includes, rows = {}, [], []
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if not member.isfile() or not name.endswith((".c", ".h", ".S")) or "/" not in name:
                continue
            text = archive.extractfile(member).read()
            files[name] = len(files)
            includes.append([found.decode("latin-1") for found in INCLUDE.findall(text)])
            rows.append(counts_of(re.findall(b"[a-z]+", INCLUDE.sub(b"", text[:4096]).lower()), columns))
    return files, includes, np.stack(rows)


def edges_of(files, includes):
    """(2, E): both directions of every include whose file is there."""
    found = set()
    for name, wanted in zip(files, includes):
        for include in wanted:
            places = (posixpath.normpath(posixpath.join(each, include)) for each in (posixpath.dirname(name), *FOLDERS))
            there = next((files[place] for place in places if place in files), None)
            if there is not None and there != files[name]:
                found |= {(there, files[name]), (files[name], there)}
    return np.array(sorted(found)).T


def classes_of(files):
    """Int (n,): the subsystem of each file."""
    seconds = ["/".join(name.split("/")[:-1][:2]) for name in files]
    large = {name for name, count in Counter(seconds).items() if count >= LEAST}
    names = [second if second in large else second.split("/")[0] for second in seconds]
    return np.unique(names, return_inverse=True)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="the kernel's source as a tar file")
    parser.add_argument("-o", "--output", type=Path, default=Path("linux.npz"), help="default: %(default)s")
    parser.add_argument("--columns", type=int, default=64, help="of features (default: 64)")
    options = parser.parse_args()
    files, includes, x = read(options.archive, options.columns)
    edges, y = edges_of(files, includes), classes_of(files)
    np.savez_compressed(options.output, edge_index=edges, x=x, y=y, **drawn_masks(len(y)))
    print(f"{options.output}: {len(y):,} files, {edges.shape[1]:,} edges, {y.max() + 1} classes")


if __name__ == "__main__":
    main()
