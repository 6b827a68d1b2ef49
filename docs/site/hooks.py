"""What mkdocs does besides: pages that the navigation names and that another change is still to bring."""

from mkdocs.structure.files import File

COMING = {"kernels.md": "# Kernels\n\nThis page is to come. `hpcgnn/kernels/__init__.py` says what they are.\n"}


def on_files(files, config):
    """Stand in for pages of COMING that docs/ does not have."""
    for name, text in COMING.items():
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=text))
    return files
