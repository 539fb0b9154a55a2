"""Reads ../situations.txt: what programs do to a prepared model, one table for every host."""
import pathlib
import typing

TABLE = pathlib.Path(__file__).resolve().parent.parent / "situations.txt"


class Situation(typing.NamedTuple):
    name: str
    does: str
    hosts: list
    backends: list  # "id:recipe"
    lines: list
    without: dict   # host or host:backend -> why the program has no meaning there


def read():
    found = []
    for line in TABLE.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "situation":
            name, _, does = rest.partition(": ")
            found.append(Situation(name, does, [], [], [], {}))
        elif word in ("hosts", "backends"):
            getattr(found[-1], word).extend(rest.split())
        elif word == "no":
            where, _, reason = rest.partition(": ")
            found[-1].without[where] = reason
        elif line and word != "#":
            found[-1].lines.append(line)
    return found


def cases(host):
    """[(situation, backend, recipe)] that a host can be in."""
    return [(s, *b.split(":")) for s in read() for b in s.backends
            if host in s.hosts or f"{host}:{b.split(':')[0]}" in s.hosts]


def name_of(case):
    return "-".join((case[0].name, *case[1:]))


def operations(situation, host, backend):
    """[(words, expected)] to run in order. expected: (whether the error is Octavo's, a word in it), or None."""
    expected = None
    for line in situation.lines:
        words = line.split()
        if words[0].startswith("@"):
            if words[0] not in (f"@{host}", f"@{backend}", f"@{host}:{backend}"):
                continue
            line = line.split(maxsplit=1)[1]
            words = words[1:]
        if words[0] in ("refused", "fails"):
            expected = words[0] == "refused", line.split(maxsplit=1)[1]
        else:
            yield words, expected
            expected = None
    assert expected is None, f"{situation.name}: an operation must follow {expected}"


def verdicts(situation, host):
    """backend -> what docs/situations.csv has of a host."""
    found = {}
    for backend in dict.fromkeys(b.split(":")[0] for b in situation.backends):
        reason = situation.without.get(f"{host}:{backend}") or situation.without.get(host)
        if host in situation.hosts or f"{host}:{backend}" in situation.hosts:
            refused = [e for _, e in operations(situation, host, backend) if e is not None]
            found[backend] = "error" if refused else "works"
        elif reason:
            found[backend] = f"- ({reason})"
    return found


def verdict(situation, host):
    found = verdicts(situation, host)
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{backend}: {word}" for backend, word in found.items())


def table():
    """The rows of docs/situations.csv."""
    rows = [["A program does", "PyTorch", "LibTorch", "JAX"]]
    for s in read():
        backends = sorted({b.split(":")[0] for b in s.backends})
        does = s.does if len(backends) > 1 else f"{s.does} ({backends[0]})"
        rows.append([does, *(verdict(s, h) for h in ("pytorch", "libtorch", "jax"))])
    return rows
