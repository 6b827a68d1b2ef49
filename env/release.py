"""The version of a release, and its tag.

    python env/release.py VERSION            # writes version and date into every file that names them
    python env/release.py --tags [--dry-run] # an annotated tag for each version from 0.3.0 on that has none

The version's home is `hpcgnn/__init__.py`. A tag stands at the first commit that has the version there. Nothing is
pushed.
"""

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = "hpcgnn/__init__.py"
#: Other files that name the version; every occurrence of the one before is replaced.
OTHERS = (
    "CITATION.cff",
    "codemeta.json",
    "docs/installing.md",
    "env/conda/recipe.yaml",
    "env/spack/spack_repo/hpcgnn/packages/py_hpcgnn/package.py",
)
FIRST_TAGGED = (0, 3, 0)


def version(text):
    """The version in the text of HOME."""
    return re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE).group(1)


def numbers(name):
    return tuple(map(int, name.split(".")))


def replace(path, old, new):
    """Write a file anew; each pattern has to occur."""
    text, count = re.subn(old, new, (ROOT / path).read_text(encoding="utf-8"))
    if not count:
        sys.exit(f"release: error: expected {old} in {path}; mend the file first")
    (ROOT / path).write_text(text, encoding="utf-8")


def write(new):
    """Write a version into all files."""
    old = version((ROOT / HOME).read_text(encoding="utf-8"))
    if not re.fullmatch(r"\d+\.\d+\.\d+", new) or numbers(new) <= numbers(old):
        sys.exit(f"release: error: expected a version of three numbers after {old}, got {new}")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    replace("CHANGELOG.md", r"(?m)^## Unreleased$", f"## {new} ({today})")
    for path in (HOME, *OTHERS):
        replace(path, rf"(?<![\d.]){re.escape(old)}(?!\d|\.\d)", new)
    replace("CITATION.cff", r'(?m)^date-released: ".*"', f'date-released: "{today}"')
    replace("codemeta.json", r'"dateModified": ".*"', f'"dateModified": "{today}"')


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def tag(dry_run):
    """Tag the versions of the history that have no tag."""
    known, there = set(), git("tag", "--list").split()
    for commit in git("log", "--reverse", "--format=%H", "-G^__version__", "--", HOME).split():
        name = version(git("show", f"{commit}:{HOME}"))
        if numbers(name) < FIRST_TAGGED or name in known or f"v{name}" in there:
            continue
        known.add(name)
        print(f"v{name} at {git('log', '-1', '--format=%h (%cs) %s', commit)}")
        if not dry_run:
            git("tag", "--annotate", "--message", f"hpcgnn {name}", f"v{name}", commit)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("version", nargs="?", metavar="VERSION", help="the version to write")
    asked.add_argument("--tags", action="store_true", help="make missing tags")
    parser.add_argument("--dry-run", action="store_true", help="name the tags only")
    arguments = parser.parse_args()
    if arguments.tags:
        tag(arguments.dry_run)
    else:
        write(arguments.version)


if __name__ == "__main__":
    main()
