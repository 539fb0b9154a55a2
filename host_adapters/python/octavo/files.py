"""Files that appear whole or not at all, also after a loss of power; and files that are read as they are at one moment."""
import os
import stat

from .errors import InvalidError

_MOST_BYTES = 1 << 24


def opened(path):
    """A regular file, open for reading. It neither waits for a FIFO nor opens a device. Raises InvalidError."""
    try:
        _expect_regular(os.stat(path))  # a device may act on being opened
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))
        _expect_regular(os.fstat(file.fileno()))
    except (OSError, ValueError) as e:
        raise InvalidError(f"{path!a:.1000}: expected a regular file that can be read, found {e}; give another path") from e
    return file


def text_of(path):
    """The text of a file. Raises InvalidError."""
    with opened(path) as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
        return data.decode()
    except ValueError as e:
        raise InvalidError(f"{path!a:.1000}: expected a text of UTF-8, found {e}; give another path") from e


def _expect_regular(status):
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("another kind of file")


def replace(path, write):
    """Calls write(partial) with a path in the same folder, and replaces `path` by the file that it wrote. Errors of write and
    of the file system pass through; then the earlier file stays."""
    path = os.fspath(path)
    partial = path + ".partial"
    try:
        write(partial)
        _to_disk(partial, os.O_RDWR)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise
    _to_disk(os.path.dirname(path) or ".", os.O_RDONLY)


def _to_disk(path, flags):
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
