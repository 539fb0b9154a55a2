"""Files that appear whole or not at all, also after a loss of power."""
import os


def replace(path, write):
    """Calls write(partial) with a path in the same folder, and puts what it wrote in the place of `path`. What write
    and the file system raise passes through; the file that was there stays then."""
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
