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


def read():
    found = []
    for line in TABLE.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "situation":
            name, _, does = rest.partition(": ")
            found.append(Situation(name, does, [], [], []))
        elif word in ("hosts", "backends"):
            getattr(found[-1], word).extend(rest.split())
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
            if words[0] not in ("@" + host, "@" + backend):
                continue
            line = line.split(maxsplit=1)[1]
            words = words[1:]
        if words[0] in ("refused", "fails"):
            expected = words[0] == "refused", line.split(maxsplit=1)[1]
        else:
            yield words, expected
            expected = None
    assert expected is None, f"{situation.name}: an operation must follow {expected}"


def verdict(situation, host):
    """What the table of docs/hosts.md says of a host."""
    found = {}
    for _, backend, _ in (c for c in cases(host) if c[0].name == situation.name):
        refused = [e for _, e in operations(situation, host, backend) if e is not None]
        found[backend] = "error" if refused else "works"
    if len(set(found.values())) == 1 and found.keys() == {b.split(":")[0] for b in situation.backends}:
        return next(iter(found.values()))
    return ", ".join(f"{backend}: {word}" for backend, word in found.items()) or "-"


def table():
    rows = ["| A program does | PyTorch | LibTorch | JAX |", "|---|---|---|---|"]
    for s in read():
        backends = sorted({b.split(":")[0] for b in s.backends})
        does = s.does if len(backends) > 1 else f"{s.does} ({backends[0]})"
        rows.append("| " + " | ".join([does, *(verdict(s, h) for h in ("pytorch", "libtorch", "jax"))]) + " |")
    return "\n".join(rows)
