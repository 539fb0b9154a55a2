"""What may be on disk after a power loss, from a log of disk_log.c.

POSIX promises little: bytes of a file are there after fsync of the file, and its name after fsync of the directory. So what
came after the last of these may be there, in part, or not at all:

  bytes   each page of 4 KiB that was written since, by itself; a size that was set since
  names   what was created, renamed, removed since, each by itself; or the first so many, as a journal keeps them
"""
import dataclasses
import pathlib

PAGE = 4096


@dataclasses.dataclass
class Event:
    what: str
    first: int
    second: int
    data: bytes

    def paths(self):
        return [pathlib.PurePosixPath(p.decode()) for p in self.data.split(b"\0")]


def read_log(path):
    content, at, events = path.read_bytes(), 0, []
    while at < len(content):
        end = content.index(b"\n", at)
        what, first, second, size = content[at:end].split()
        at = end + 1 + int(size)
        events.append(Event(what.decode(), int(first), int(second), content[end + 1:at]))
    return events


class File:
    def __init__(self):
        self.synced, self.pending = b"", []

    def content(self, keeps):
        """`keeps` says for each page of a write, and each size, whether it is on disk."""
        data = bytearray(self.synced)
        for what, offset, written in self.pending:
            if what == "size":
                if keeps():
                    del data[offset:]
                    data.extend(bytes(offset - len(data)))
                continue
            begin = offset
            while begin < offset + len(written):
                end = min((begin // PAGE + 1) * PAGE, offset + len(written))
                if keeps():
                    data.extend(bytes(max(0, begin - len(data))))
                    data[begin:end] = written[begin - offset:end - offset]
                begin = end
        return bytes(data)

    def sync(self):
        self.synced, self.pending = self.content(lambda: True), []


class Directory:
    def __init__(self):
        self.synced, self.pending = {}, []  # name -> File or Directory; lists of (name, that or None)

    def entries(self, kept):
        """`kept`: the operations since the last fsync that are on disk."""
        found = dict(self.synced)
        for operation in kept:
            for name, target in operation:
                if target is None:
                    found.pop(name, None)
                else:
                    found[name] = target
        return found

    def now(self):
        return self.entries(self.pending)

    def sync(self):
        self.synced, self.pending = self.now(), []


class Disk:
    """The directory of the log after its first events."""

    def __init__(self):
        self.root, self.files = Directory(), {}

    def find(self, path):
        found = self.root
        for part in path.parts:
            found = found.now()[part]
        return found

    def apply(self, event, forget=()):
        """`forget`: kinds of events that do nothing, as if the program had left them out."""
        if event.what in forget:
            return
        if event.what in ("write", "size"):
            self.files[event.first].pending.append((event.what, event.second, event.data))
        elif event.what == "sync":
            self.files[event.first].sync()
        elif event.what == "sync_directory":
            self.find(event.paths()[0]).sync()
        elif event.what == "rename":
            old, new = event.paths()
            assert old.parent == new.parent, event
            folder = self.find(old.parent)
            folder.pending.append([(old.name, None), (new.name, folder.now()[old.name])])
        else:
            path = event.paths()[0]
            made = {"create": File, "make_directory": Directory, "remove": lambda: None}[event.what]()
            if event.what == "create":
                self.files[event.first] = made
            self.find(path.parent).pending.append([(path.name, made)])

    def after_power_loss(self, choice):
        """The content of each file, and None for each directory, by path."""
        found = {}

        def walk(folder, at):
            for name, target in folder.entries(choice.names(folder.pending)).items():
                if isinstance(target, Directory):
                    found[at / name] = None
                    walk(target, at / name)
                else:
                    found[at / name] = target.content(choice.bytes())
        walk(self.root, pathlib.PurePosixPath())
        return found


class Everything:
    """What is there without a power loss."""

    def names(self, pending):
        return pending

    def bytes(self):
        return lambda: True


class Nothing:
    """Only what was synced."""

    def names(self, pending):
        del pending
        return []

    def bytes(self):
        return lambda: False


class Some:
    """A part, by a random.Random."""

    def __init__(self, random):
        self.random = random

    def names(self, pending):
        if self.random.random() < 0.5:
            return pending[:self.random.randint(0, len(pending))]
        share = self.random.choice((0.1, 0.5, 0.9))
        return [p for p in pending if self.random.random() < share]

    def bytes(self):
        share = self.random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        return lambda: self.random.random() < share


def write_tree(tree, folder):
    folder.mkdir(parents=True)
    for path, content in sorted(tree.items()):
        if content is None:
            (folder / path).mkdir(exist_ok=True)
        else:
            (folder / path).write_bytes(content)


def read_tree(folder):
    return {pathlib.PurePosixPath(p.relative_to(folder)): None if p.is_dir() else p.read_bytes()
            for p in folder.rglob("*")}
