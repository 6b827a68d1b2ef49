#!/usr/bin/env python3
"""Prints the results of runs of the suite as tables of references.toml: the medians over the reports, the lower
one of two.

Every test must have passed. Where exact bytes have changed on purpose, take the old figures out of references.toml
and run the suite again, so that it records and does not judge.
"""

import argparse
import json
import statistics
import sys


def main():
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example:\n  python jobs/reframe/renew.py runs/reframe/report.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("reports", nargs="+", metavar="REPORT", help="report.json of a run, on one system")
    found = {}
    for path in parser.parse_args().reports:
        with open(path, encoding="utf-8") as file:
            cases = [case for run in json.load(file)["runs"] for case in run["testcases"]]
        failed = [case["name"] for case in cases if case["result"] != "pass"]
        if failed:
            print(
                f"renew.py: error: {path}: {failed[0]} has not passed; expected runs without a failure", file=sys.stderr
            )
            return 2
        for case in cases:
            for name, (value, *_) in case["perfvalues"].items():
                table = f"{case['system']}.{case['name'].split()[0]}.{case['num_tasks']}"
                found.setdefault(table, {}).setdefault(name.rpartition(":")[2], []).append(value)
    for table, figures in sorted(found.items()):
        print(f"[{table}]")
        for name, values in figures.items():
            middle = statistics.median_low(values)  # bytes stay whole numbers, to the last digit
            print(f"{name} = {middle if isinstance(middle, int) else f'{middle:.4g}'}")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
