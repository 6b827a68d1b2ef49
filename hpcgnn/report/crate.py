"""`ro-crate-metadata.json`: a run directory described for archives, as RO-Crate 1.1 with the profile of process runs.

It repeats what `summary.json` and `config.toml` have, in words of schema.org.
"""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcgnn.output_files import RUN_FILES

CRATE = "ro-crate-metadata.json"
_PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
_TYPES = {".json": "application/json", ".jsonl": "application/jsonl", ".toml": "application/toml"}
_TYPES |= {".py": "text/x-python", ".txt": "text/plain", ".png": "image/png"}


def _one(name: str) -> dict[str, str]:
    return {"@id": name}


def crate(folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a run directory. summary: the content of its `summary.json`."""
    now, versions = datetime.now(UTC).isoformat(timespec="seconds"), dict(summary["versions"])
    program, graph = {"@id": "#hpcgnn", "@type": "SoftwareApplication", "name": "hpcgnn"}, summary["graph_uuid"]
    program["softwareVersion"] = versions.pop("hpcgnn")
    title = f"Training of {summary['model']} on {Path(summary['graph']).name}, {summary['ranks']} ranks"
    files = [name for name in RUN_FILES if name != CRATE and (folder / name).exists()]
    entities: list[dict[str, Any]] = [
        {
            "@id": CRATE,
            "@type": "CreativeWork",
            "about": _one("./"),
            "conformsTo": _one("https://w3id.org/ro/crate/1.1"),
        },
        {
            **{"@id": "./", "@type": "Dataset", "name": title, "datePublished": now, "conformsTo": _one(_PROFILE)},
            "description": f"A run of hpcgnn: {summary['epochs']} epochs, seed {summary['seed']}.",
            "license": "not stated: the graph's licence decides",
            "hasPart": [_one(name) for name in files],
            "mentions": _one("#train"),
        },
        {"@id": _PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
        {
            **{"@id": "#train", "@type": "CreateAction", "name": shlex.join(summary["command"]), "endTime": now},
            **{"instrument": _one("#hpcgnn"), "object": _one(f"urn:uuid:{graph}")},
            "result": [_one(name) for name in files],
        },
        {**program, "softwareRequirements": [_one(f"#{name}") for name in versions]},
        {"@id": f"urn:uuid:{graph}", "@type": "CreativeWork", "name": summary["graph"], "identifier": graph},
    ]
    for name, version in versions.items():
        entities.append({"@id": f"#{name}", "@type": "SoftwareApplication", "name": name, "softwareVersion": version})
    for name in files:
        kind = _TYPES[Path(name).suffix]
        entities.append({"@id": name, "@type": "File", "name": name, "encodingFormat": kind})
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": entities}
