"""Keeps the documents true: links lead somewhere, every code block names its source, and quoted code is the code of a
built file, and the site leads to every page. Their language is language.py's part.

  docs_check.py <root>
  docs_check.py --update <root>   copies the regions into the pages
  docs_check.py --self-test

Each fenced block has one of the markers of pages.py on the line before it. A block after
`<!-- from: samples/minimal_plugin/minimal.c#seal -->` must equal the region between the lines `[seal]`
and `[/seal]` of that file, each alone in a //, /* */ or # comment. Without `#region` it must equal the
whole file. A block after `<!-- diff: old.py new.py -->` must be the lines that differ between the two.
Blocks marked `run`, `output` and `config` are tests/docs/docs_run.py's part. In no text file may pip be given the name
octavo, which no index has: whoever registers it there would run code on the machines of readers. A file's name is safe, and
--no-index is; the extras cuda and all of a file need the file of octavo_cuda in the same command.
"""
import collections
import difflib
import pathlib
import re
import sys
import tempfile
import textwrap

import pages
import tree

MARKER = re.compile(r"\s*(?://|/\*|#)\s*\[(/?)([\w-]+)\]\s*(?:\*/)?\s*$")
BY_NAME = re.compile(r"(?:\bpip3? install\s[^\n`;]*?|\binstall ['\"]?(?=octavo\[))(?<![\w./~-])"
                     r"octavo(?:[-_]cuda)?(?:\[[\w,]*\])?(?=[\s,;'\"`]|$)", re.M)
BY_EXTRA = re.compile(r"\bpip3? install\s[^\n`;]*\.whl\[[\w,]*\b(?:cuda|all)\b[^\n`;]*")
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


def check_names(path, text):
    return [f"{path}: '{found[0]}' takes a name from an index that has no octavo, write the wheel's file name, or --no-index"
            for found in BY_NAME.finditer(text) if "--no-index" not in found[0]] + [
           f"{path}: '{found[0]}' takes octavo_cuda from an index, add the name of its file, or --no-index"
            for found in BY_EXTRA.finditer(text) if not re.search(r"--no-index|octavo_cuda-", found[0])]


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


def check_quote(root, where, block):
    wanted, why = wanted_text(root, block.kind, block.argument)
    if wanted is None:
        return [f"{where}, {why}"]
    quoted = block.text.strip("\n")
    if wanted == quoted:
        return []
    old, new = quoted.splitlines(), wanted.splitlines()
    at = next((i for i, pair in enumerate(zip(old, new)) if pair[0] != pair[1]),
              min(len(old), len(new)))
    show = [(side[at] if at < len(side) else "(end)") for side in (new, old)]
    return [f"{where}, line {at + 1}: the source says '{show[0]}', the page '{show[1]}'"]


def check_blocks(root, path, text):
    """The faults of a page's blocks, and how many there are of each kind."""
    faults = [f"{path}:{line}: {what}" for line, what in pages.marker_faults(text)]
    kinds = collections.Counter()
    for block in pages.blocks(text):
        kinds[block.kind] += 1
        if block.kind in ("from", "diff") and block.last:
            faults += check_quote(root, f"{path}:{block.line}: quotes {block.argument}", block)
    return faults, kinds


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


def check_markers(marked, quoted):
    return [f"{path}: no page quotes [{name}]; remove its markers"
            for path, name in sorted(marked) if f"{path}#{name}" not in quoted]


def check_way(root, pages):
    """docs/mkdocs.yml: each page of docs/ has a place in the site's navigation."""
    way = root / "docs" / "mkdocs.yml"
    listed = set(re.findall(r"^ *- (?:[^:\n]+: )?(\S+\.md)$", way.read_text(), re.M)) if way.exists() else set()
    return [f"{page}: docs/mkdocs.yml does not list it under nav" for page in pages
            if page.parts[0] == "docs" and page.as_posix() not in listed]


def check(root):
    root = pathlib.Path(root)
    faults, kinds = [], collections.Counter()
    marked, quoted, pages = set(), set(), []
    for path in tree.files(root):
        text = tree.text(root, path)
        faults += check_names(path, text)
        quoted |= set(re.findall(r"<!-- from: (\S+#\S+) -->", text))
        if path.suffix != ".md" and path.parts[:3] != ("tests", "abi", "v1_rc4"):
            marked |= {(path, m[2]) for m in map(MARKER.match, text.splitlines()) if m and m[1]}
        if path.suffix == ".md":
            found, of_page = check_blocks(root, path, text)
            faults += check_links(root, path, text) + found
            pages.append(path)
            kinds += of_page
    print(f"{len(pages)} pages, {kinds['from'] + kinds['diff']} quoted regions, {kinds['run']} shell blocks "
          f"and {kinds['output']} outputs and {kinds['config']} configurations for docs_run.py, "
          f"{kinds['not run']} blocks with a reason")
    faults += check_markers(marked, quoted) + check_way(root, pages)
    if not pages or kinds["from"] + kinds["diff"] == 0:
        faults.append("expected pages with quoted regions, found none; the check would be empty")
    return faults


# A page with one fault each, and what docs_check says of it.
PLANTED = [
    ("[bad](gone.md) [good](b.md#two-words) `[no](code.md)`", "links gone.md"),
    ("[worse](b.md#gone)", "no such heading"),
    ("Run pip inst" "all 'octavo[jax]', then\npi" "p install octavo_cuda", "'octavo[jax]' takes|install octavo_cuda' takes"),
    ("pip install ./octavo-0.1.0.whl[torch] octavo_cuda-*.whl; pip uninstall octavo; vcpkg install octavo", None),
    ("pip install --no-index --find-links out 'octavo[cuda]'; pip install octavo-0.1.0.whl[all] ./octavo_cuda-0.1.0.whl", None),
    ("pip install" " ./octavo-0.1.0.whl[torch,cuda]", "takes octavo_cuda from an index"),
    ("`beside`\n<!-- not run: it lies elsewhere -->\n```sh\nmend\n```", None),
    ("<!-- from: x.c#a -->\n```c\nint a;\n```", None),
    ("<!-- from: x.c#b -->\n```c\nint b;\n\n  int d;\n```",
     "#b, line 3: the source says '  int c;', the page '  int d;'"),
    ("<!-- from: x.c#z -->\n```c\n```", "no region [z]"),
    ("<!-- from: y.c#a -->\n```c\n```", "y.c#a, which does not exist"),
    ("<!-- from: x.c#a -->\ntext", "expected a fenced block on the next line"),
    ("<!-- diff: a.py b.py -->\n```diff\n-one\n+two\n```", None),
    ("<!-- diff: a.py c.py -->\n```diff\n```", "a.py c.py, which does not exist: c.py"),
    ("<!-- diff: a.py b.py -->\n```diff\n-one\n+three\n```", "says '+two', the page '+three'"),
    ("```sh\ntrue\n```", "a code block without a marker"),
    ("<!-- run -->\n\n```sh\ntrue\n```", "a code block without a marker|expected a fenced block"),
    ("<!-- run -->\n```sh\ntrue", "a block that never ends"),
    ("<!-- run -->\n```python\npass\n```", "`run` expects a block of sh, found python"),
    ("<!-- run: slowly -->\n```sh\ntrue\n```", "`run` has no option slowly"),
    ("<!-- run: exit 1, with --steps 2 -->\n```sh\nfalse\n```\n<!-- output: part -->\n```text\nx\n```",
     None),
    ("<!-- output -->\n```text\nx\n```", "expects a block marked `run` earlier"),
    ("<!-- config -->\n```toml\nschema = 1\n```", None),
    ("<!-- not run: why -->\n```sh\ntrue\n```", "expects a reason in words, found 'why'"),
    ("1. An item:\n   <!-- not run: needs a GPU -->\n   ```sh\n   nvidia-smi\n   ```\n\n       text", None),
    ("Run:\n\n    make all\n", "an indented code block"),
]


def self_test():
    source = "/* x */\n/* [a] */\nint a;\n/* [/a] */\n  // [b]\n  int b;\n\n    int c;\n  // [/b]\n// [c]\n// [/c]\n"
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        for name, content in {"x.c": source, "b.md": "## Two words\n", "a.py": "x\none\n",
                              "b.py": "x\ntwo\n"}.items():
            pathlib.Path(directory, name).write_text(content)
        for number, (page, _) in enumerate(PLANTED):
            pathlib.Path(directory, f"page{number}.md").write_text(page)
        pathlib.Path(directory, "docs").mkdir()
        for name, content in {"mkdocs.yml": "nav:\n  - In: docs/in.md\n", "in.md": "", "out.md": ""}.items():
            pathlib.Path(directory, "docs", name).write_text(content)
        faults = check(directory)
    if [f for f in faults if "docs/" in f] != ["docs/out.md: docs/mkdocs.yml does not list it under nav"]:
        wrong.append(f"expected a fault for a page outside of the navigation only, found {faults}")
    if "x.c: no page quotes [c]; remove its markers" not in faults:
        wrong.append("expected a fault for the markers that no page quotes")
    for number, (page, wanted) in enumerate(PLANTED):
        mine = [f for f in faults if f.startswith(f"page{number}.md:")]
        expected = wanted.split("|") if wanted else []
        if len(mine) != len(expected) or any(not any(w in f for f in mine) for w in expected):
            wrong.append(f"{page!r}: expected {expected}, found {mine}")
    return tree.report(wrong, f"{len(PLANTED)} planted pages")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--update":
        sys.exit(tree.report(update(sys.argv[2]), "documents"))
    tree.main(__doc__, check, self_test, "documents")
