"""Rows of a bench in a file, for plots and for the next comparison."""

import csv

from hpcgnn.records import replaced_by


def write_csv(path, rows):
    """Write dictionaries of the same keys as a CSV file; no half-written file has its name."""
    with replaced_by(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
