"""Keeps the documents true: links lead somewhere, quoted code is the code of a built file.

  docs_check.py <root>
  docs_check.py --update <root>   copies the regions into the pages
  docs_check.py --self-test

A fenced block after `<!-- from: samples/minimal_plugin/minimal.c#seal -->` must equal the region
between the lines `[seal]` and `[/seal]` of that file, each alone in a //, /* */ or # comment. Without
`#region` it must equal the whole file. A block after `<!-- diff: old.py new.py -->` must be the lines
that differ between the two.
"""
import difflib
import pathlib
import re
import sys
import tempfile
import textwrap

import tree

MARKER = re.compile(r"\s*(?://|/\*|#)\s*\[(/?)([\w-]+)\]\s*(?:\*/)?\s*$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


def region(text, name):
    """The lines between the markers, dedented, other markers left out; None when absent."""
    inside, found, lines = False, False, []
    for line in text.splitlines():
        match = MARKER.match(line)
        if match:
            if match.group(2) == name:
                inside, found = not match.group(1), True
            continue
        if inside:
            lines.append(line.rstrip())
    return textwrap.dedent("\n".join(lines)).strip("\n") if found and not inside else None


def anchors(text):
    """The fragments that a rendered page offers: its headings in lower case with dashes."""
    found = set()
    for heading in re.findall(r"^#+\s+(.*?)\s*#*$", text, re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.replace(" ", "-"))
    return found


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def check_links(root, path, text):
    faults = []
    for target in LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        file = (root / path).parent / name if name else root / path
        if not file.exists():
            faults.append(f"{path}: links {target}, which does not exist")
        elif fragment and file.suffix == ".md" and fragment not in anchors(
                file.read_text(encoding="utf-8")):
            faults.append(f"{path}: links {target}, but {name or path} has no such heading")
    return faults


def difference(root, old, new):
    """The lines of `old` that go and of `new` that come, unified without context or headers."""
    sides = [(root / name).read_text(encoding="utf-8").splitlines() for name in (old, new)]
    lines = list(difflib.unified_diff(*sides, n=0, lineterm=""))[2:]
    return "\n".join(line for line in lines if not line.startswith("@@"))


def wanted_text(root, kind, arguments):
    """(what a marker asks for, or None; why there is nothing)."""
    if kind == "diff":
        names = arguments.split()
        missing = [n for n in names if not (root / n).is_file()]
        if len(names) != 2 or missing:
            return None, f"which does not exist: {', '.join(missing) or 'a second file'}"
        return difference(root, *names), None
    name, _, part = arguments.partition("#")
    if not (root / name).is_file():
        return None, "which does not exist"
    content = (root / name).read_text(encoding="utf-8")
    wanted = region(content, part) if part else content.strip("\n")
    return wanted, None if wanted is not None else (
        f"but that file has no region [{part}] .. [/{part}]")


def check_quotes(root, path, text):
    faults, quotes = [], 0
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        match = re.fullmatch(r"\s*<!-- (from|diff): (\S+(?: \S+)?) -->\s*", line)
        if not match:
            continue
        quotes += 1
        where = f"{path}:{number}: quotes {match.group(2)}"
        block = lines[number:]
        if not block or not block[0].startswith("```") or "```" not in block[1:]:
            faults.append(f"{where}, expected a fenced block on the next line")
            continue
        quoted = "\n".join(l.rstrip() for l in block[1:block.index("```", 1)]).strip("\n")
        wanted, why = wanted_text(root, *match.groups())
        if wanted is None:
            faults.append(f"{where}, {why}")
        elif wanted != quoted:
            old, new = quoted.splitlines(), wanted.splitlines()
            at = next((i for i, pair in enumerate(zip(old, new)) if pair[0] != pair[1]),
                      min(len(old), len(new)))
            show = [(side[at] if at < len(side) else "(end)") for side in (new, old)]
            faults.append(f"{where}, line {at + 1}: the source says '{show[0]}', "
                          f"the page '{show[1]}'")
    return faults, quotes


def update(root):
    """Brings every quoted block up to date; what has no source is left for check to report."""
    root = pathlib.Path(root)
    quote = re.compile(r"(<!-- (from|diff): (\S+(?: \S+)?) -->\n```\w*\n)(.*?)(^```$)", re.S | re.M)

    def fresh(match):
        head, kind, arguments, _, fence = match.groups()
        wanted, _ = wanted_text(root, kind, arguments)
        return match.group(0) if wanted is None else f"{head}{wanted}\n{fence}"

    for path in tree.files(root):
        if path.suffix == ".md":
            text = tree.text(root, path)
            if quote.sub(fresh, text) != text:
                (root / path).write_text(quote.sub(fresh, text), encoding="utf-8")
                print(f"{path}: updated")
    return check(root)


def check(root):
    root = pathlib.Path(root)
    faults, pages, quotes = [], 0, 0
    for path in tree.files(root):
        if path.suffix == ".md":
            text = tree.text(root, path)
            found, count = check_quotes(root, path, text)
            faults += check_links(root, path, text) + found
            pages, quotes = pages + 1, quotes + count
    print(f"{pages} pages, {quotes} quoted regions")
    if pages == 0 or quotes == 0:
        faults.append("expected pages with quoted regions, found none; the check would be empty")
    return faults


def self_test():
    source = "/* x */\n/* [a] */\nint a;\n/* [/a] */\n  // [b]\n  int b;\n\n    int c;\n  // [/b]\n"
    page = ("# One page\n[good](b.md#two-words) [bad](gone.md) [worse](b.md#gone) `[no](code.md)`\n"
            "<!-- from: x.c#a -->\n```c\nint a;\n```\n<!-- from: x.c#b -->\n```c\nint b;\n\n  int d;\n```\n"
            "<!-- from: x.c#z -->\n```c\n```\n<!-- from: y.c#a -->\n```c\n```\n<!-- from: x.c#a -->\ntext\n"
            "<!-- diff: a.py b.py -->\n```diff\n-one\n+two\n```\n<!-- diff: a.py c.py -->\n```diff\n```\n"
            "<!-- diff: a.py b.py -->\n```diff\n-one\n+three\n```\n")
    wanted = ["links gone.md", "no such heading", "#b, line 3: the source says '  int c;', the page "
              "'  int d;'", "no region [z]", "y.c#a, which does not exist", "expected a fenced block",
              "a.py c.py, which does not exist: c.py", "says '+two', the page '+three'"]
    with tempfile.TemporaryDirectory() as directory:
        for name, content in {"x.c": source, "a.md": page, "b.md": "## Two words\n", "a.py": "x\none\n",
                              "b.py": "x\ntwo\n"}.items():
            pathlib.Path(directory, name).write_text(content)
        faults = check(directory)
    wrong = [f"expected a fault with: {w}" for w in wanted if not any(w in f for f in faults)]
    if len(faults) != len(wanted):
        wrong.append(f"expected {len(wanted)} faults, found {faults}")
    return tree.report(wrong, "planted pages")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) == 3 and sys.argv[1] == "--update":
        sys.exit(tree.report(update(sys.argv[2]), "documents"))
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(tree.report(check(sys.argv[1]), "documents"))
