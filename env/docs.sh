#!/usr/bin/env bash
# Builds the documentation of docs/ as a site: sets up what is missing, then build/site/index.html. A broken link is an error.
#
#   bash env/docs.sh [options of `mkdocs build`]
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_environment docs
cd "$project"
python -m mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml "$@"
echo "documentation: $project/build/site/index.html"
