"""HDF5 files that are written to a disk which may be full.

When a write fails inside the HDF5 library, it cannot close the file any more and crashes the interpreter, there or at
its end (seen with 1.14: a segmentation fault instead of "no space left on device"). So it writes through an object that
remembers the first failure and lets the library believe that all is well; whoever writes is then told.
"""

import contextlib
import io

import h5py


class _Deferred(io.RawIOBase):
    """A file whose writes never fail: `failure` is the first OSError, and what comes after it is thrown away."""

    def __init__(self, path, mode):
        self._file, self.failure = open(path, mode, buffering=0), None

    def _try(self, action, *arguments):
        if self.failure is None:
            try:
                return action(*arguments)
            except OSError as error:
                self.failure = error
        return 0

    def write(self, data):
        rest = memoryview(data).cast("B")
        size = len(rest)
        while self.failure is None and len(rest):
            rest = rest[self._try(self._file.write, rest) :]
        return size

    def truncate(self, size=None):
        self._try(self._file.truncate, size)
        return size

    def flush(self):
        """Nothing is kept back."""

    def readinto(self, buffer):
        return self._file.readinto(buffer)

    def seek(self, offset, whence=0):
        return self._file.seek(offset, whence)

    def tell(self):
        return self._file.tell()

    def close(self):
        self._file.close()
        super().close()

    def readable(self):
        return True

    def writable(self):
        return True

    def seekable(self):
        return True

    def check(self):
        """Raise what went wrong."""
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def written_file(path, change=False):
    """Yield (h5py.File, check): a file that is made anew or, with change, changed; check() raises OSError if a write
    has failed, and so does the end of the body.
    """
    with contextlib.closing(_Deferred(path, "r+b" if change else "w+b")) as raw:
        with h5py.File(raw, "r+" if change else "w", libver="latest") as file:
            yield file, raw.check
        raw.check()
