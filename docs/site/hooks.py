"""The index of the search becomes a script.

MkDocs' own search reads its index with a request from a worker. Browsers refuse both for pages that are opened from the
file system. A script with the index is loaded like any other.
"""

import shutil
from pathlib import Path

from mkdocs.contrib.search import base_path


def on_post_build(config):
    """Replace search/search_index.json by a script, with lunr beside it."""
    folder = Path(config.site_dir, "search")
    index = folder / "search_index.json"
    (folder / "index.js").write_text(f"var searchIndex = {index.read_text(encoding='utf-8')};\n", encoding="utf-8")
    index.unlink()
    shutil.copy(Path(base_path, "templates", "search", "lunr.js"), folder)
