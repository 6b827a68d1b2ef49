"""What can go wrong, in the words a user needs: what was expected, what came, what to do.

Every error that a user can cause derives from `HpcgnnError` and is shown as one line without a traceback.
Anything else that escapes is a fault of this program and keeps its traceback.
"""


class HpcgnnError(ValueError):
    """A mistake in what was asked for or given; the message says what was expected, what came and the remedy."""


class ConfigError(HpcgnnError):
    """An option or configuration key that does not exist, or a value outside its range."""


class FormatError(HpcgnnError):
    """A file that is not what it should be: foreign, truncated, corrupted, or of an unknown version."""


class GraphError(HpcgnnError):
    """A readable graph whose contents cannot be trained on: labels outside the classes, NaN features, no map."""


class CheckpointError(HpcgnnError):
    """A checkpoint that cannot be read, or that belongs to another model or graph."""


class RunDirError(HpcgnnError):
    """A run directory that exists, or that cannot be written."""


class TrainingError(HpcgnnError):
    """Training that went wrong on good input: a loss that is not finite."""


class RemoteError(HpcgnnError):
    """Raised on the ranks that were well when another rank failed in a step that all take together."""
