"""Builds the site of the documents, and checks that it needs no other host.

  site.py build <root> <folder>     the site in <folder>/site
  site.py check <root> <scratch>    the same, then what a browser would load; exit code 77: MkDocs is not installed
  site.py --self-test

docs/mkdocs.yml holds theme and navigation. The pages are the tree's own, each in its place, so links between them work in
the tree and on the site. A file that a page links and that is no page becomes one, which search leaves out. A folder becomes
its README, or the list of its files. MkDocs comes from the group site of tests/environment.
"""
import html
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "repo"))
import docs_check
import tree

FENCED = re.compile(r"^( *)```.*?^\1```$", re.S | re.M)
NOT_FOUND_BY_SEARCH = "---\nsearch:\n  exclude: true\n---\n\n"
STARTS = re.compile(r"[-*] |\d+\. |\|")  # of a list or a table
AS_IT_IS = {".svg", ".png", ".css"}
# Attributes by which a page loads something; a link that a reader follows may lead anywhere.
LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data"),
         ("video", "src"), ("use", "href")}
RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "manifest"}


def page_of(root, path):
    """Where the page for a linked file or folder is, relative to the root; None: it stays a file."""
    if path.suffix in AS_IT_IS or path.suffix == ".md":
        return None
    if (root / path).is_dir():
        return path / ("README.md" if (root / path / "README.md").is_file() else "index.md")
    return path.with_name(path.name + ".md")


def text_of(root, path, files):
    """The page for a file or folder."""
    if (root / path).is_dir():
        inside = [f"- `{f.relative_to(path)}`" for f in files if f.is_relative_to(path)]
        return f"{NOT_FOUND_BY_SEARCH}# {path}\n\n" + "\n".join(inside) + "\n"
    return f"{NOT_FOUND_BY_SEARCH}# {path.name}\n\n`{path}`\n\n````text\n{tree.text(root, path)}\n````\n"


def rewritten(root, path, text, wanted):
    """The text of a page whose links lead to pages; adds to `wanted` what has to become one."""
    def link(match):
        name, hash_, fragment = match.group(1).partition("#")
        if not name or re.match(r"[a-z]+:", name):
            return match.group(0)
        target = pathlib.PurePosixPath(os.path.normpath(path.parent / name))
        page = page_of(root, target)
        if page is None:
            return match.group(0)
        if page.name != "README.md":
            wanted.add(target)
        there = pathlib.PurePosixPath(os.path.relpath(page, path.parent)).as_posix()
        target = there + (hash_ + fragment if page.name == "README.md" else "")
        before, after = match.start(1) - match.start(), match.end(1) - match.start()
        return match.group(0)[:before] + target + match.group(0)[after:]  # the text may hold the same words

    def outside(piece):
        return re.sub(docs_check.LINK, link, piece)

    parts, at = [], 0
    for block in FENCED.finditer(text):
        parts += [outside(text[at:block.start()]), block.group(0)]
        at = block.end()
    return "".join([*parts, outside(text[at:])])


def in_its_markdown(text):
    """A page as MkDocs reads it: a list or table needs an empty line before it, and what belongs to a numbered item
    four spaces in place of three."""
    lines, fenced, numbered = [], False, False
    for line in text.split("\n"):
        if not fenced and line and not line[0].isspace():
            numbered = line[0].isdigit() and bool(STARTS.match(line))
        before = lines[-1] if lines else ""
        if not fenced and STARTS.match(line) and before and not before[0].isspace() and not STARTS.match(before):
            lines.append("")
        fenced ^= line.lstrip().startswith("```")
        lines.append(f" {line}" if numbered and line.startswith("   ") else line)
    return "\n".join(lines)


def stage(root, folder):
    """The pages, in their places below folder/pages."""
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    files, wanted, made = tree.files(root), set(), {}
    for path in files:
        if path.suffix == ".md":
            made[path] = in_its_markdown(rewritten(root, path, tree.text(root, path), wanted))
        elif path.suffix in AS_IT_IS and path.parts[0] == "docs":
            (pages / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, pages / path)
    made |= {page_of(root, path): text_of(root, path, files) for path in wanted}
    for path, text in made.items():
        (pages / path).parent.mkdir(parents=True, exist_ok=True)
        (pages / path).write_text(text, encoding="utf-8")
    shutil.copy2(root / "docs/mkdocs.yml", folder / "mkdocs.yml")
    return len(made)


def environment(root):
    """The Python environment with the group site; None, with the reason in print, without it."""
    done = subprocess.run(["bash", root / "tests/environment/install.sh", "--check", "site"], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        print(f"{done.stderr}Run bash tests/environment/install.sh site")
        return None
    return pathlib.Path(os.environ.get("OCTAVO_TORCH_ENV") or root / ".cache/torch")


def build(root, folder, installed):
    """(pages, what MkDocs printed against them)."""
    folder.mkdir(parents=True, exist_ok=True)
    count = stage(root, folder)
    done = subprocess.run(
        [installed / "bin/python", "-m", "mkdocs", "build", "--strict", "--clean", "-f", folder / "mkdocs.yml"],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(installed / "apart/site"), "NO_MKDOCS_2_WARNING": "1"})
    return count, [] if done.returncode == 0 else (done.stdout + done.stderr).splitlines()


class Loaded(html.parser.HTMLParser):
    """What a browser loads with a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.found += [value for name, value in attributes if (tag, name) in LOADS]
        if tag == "link" and set((given.get("rel") or "").split()) & RELATIONS:
            self.found.append(given.get("href"))
        if "mermaid" in (given.get("class") or "").split():
            self.found.append("//mermaid")  # the theme loads its script from another host as soon as there is a diagram


def foreign(url):
    return bool(re.match(r"(https?:)?//", url or ""))


def unrendered(text):
    """Lines of the page itself, without its code, that are still Markdown."""
    body = re.search(r"<article.*?</article>", text, re.S)
    plain = re.sub(r"<(pre|code)\b.*?</\1>|<!--.*?-->", "", body.group(0) if body else "", flags=re.S)
    plain = re.sub(r"<t[dh]\b[^>]*>", "cell ", plain)  # a cell may start with a dash
    return re.findall(r"^(?:\||[-*] |\d+\. |#+ |```).*$", html.unescape(re.sub(r"<[^>]+>", "\n", plain)), re.M)


def check_site(site):
    """What a site loads from elsewhere, or lacks."""
    faults, count = [], 0
    for page in site.rglob("*.html"):
        parser, text = Loaded(), page.read_text(encoding="utf-8")
        parser.feed(text)
        count += 1
        faults += [f"{page.relative_to(site)}: loads {url} from another host" for url in parser.found if foreign(url)]
        faults += [f"{page.relative_to(site)}: Markdown that is not rendered: {line}" for line in unrendered(text)]
    for style in site.rglob("*.css"):
        for url in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", style.read_text(encoding="utf-8")):
            if foreign(url):
                faults.append(f"{style.relative_to(site)}: loads {url} from another host")
    index = site / "search/search_index.json"
    found = json.loads(index.read_text(encoding="utf-8"))["docs"] if index.is_file() else []
    if not any("amax_history_len" in entry["text"] and entry["location"].startswith("docs/config.html") for entry in found):
        faults.append(f"{index}: expected the keys of docs/config.md, found {len(found)} entries without them")
    if count == 0:
        faults.append("expected pages, found none")
    return faults


def self_test():
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder)
        (site / "search").mkdir()
        entries = [{"location": "docs/config.html#a", "text": "amax_history_len"}]
        (site / "search/search_index.json").write_text(json.dumps({"docs": entries}))
        (site / "a.html").write_text('<article><td>- (x)</td></article><a href="https://x.org">x</a><link rel="canonical" href="https://x.org/a">'
                                     '<img src="b.svg"><script src="c.js"></script>')
        if check_site(site):
            wrong.append(f"a site that loads nothing: {check_site(site)}")
        for planted in ('<script src="https://x.org/a.js"></script>', '<img src="//x.org/a.png">',
                        '<link rel="stylesheet" href="https://x.org/a.css">', '<pre class="mermaid"></pre>', "<article><p>A table:\n| a |\n</p></article>"):
            (site / "b.html").write_text(planted)
            if len(check_site(site)) != 1:
                wrong.append(f"{planted}: found {check_site(site)}")
        (site / "b.html").unlink()
        (site / "a.css").write_text("@font-face{src:url(https://x.org/a.woff2)}")
        (site / "search/search_index.json").unlink()
        if len(check_site(site)) != 2:
            wrong.append(f"a font, and no index: found {check_site(site)}")
        root, wanted = site, set()
        (root / "src").mkdir()
        (root / "src/x.c").write_text("int x;")
        page = "[../src/x.c](../src/x.c) [`x`](../src/x.c#L1) [y](b.md) [p](p.svg) [s](../src) [w](https://x.org)\n```c\n[n](../src/n.c)\n```\n"
        text = rewritten(root, pathlib.PurePosixPath("docs/a.md"), page, wanted)
        if text.count("[../src/x.c](../src/x.c.md) ") != 1 or "[`x`](../src/x.c.md)" not in text or "(../src/index.md)" not in text or "(../src/n.c)" not in text or len(wanted) != 2:
            wrong.append(f"links: found {text} and {wanted}")
        page = "A list:\n- a\n  b\n- c\n\n1. One\n   ```text\n- no list\n   ```\n2. Two\nText\n| a |\n"
        as_read = "A list:\n\n- a\n  b\n- c\n\n1. One\n    ```text\n- no list\n    ```\n2. Two\nText\n\n| a |\n"
        if in_its_markdown(page) != as_read:
            wrong.append(f"lists: found {in_its_markdown(page)}")
    return tree.report(wrong, "planted sites")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 4 or sys.argv[1] not in ("build", "check"):
        sys.exit(__doc__)
    root, folder = pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
    installed = environment(root)
    if installed is None:
        return 77
    count, faults = build(root, folder, installed)
    if not faults:
        faults = check_site(folder / "site")
    print(f"{count} pages in {folder / 'site'}")
    if sys.argv[1] == "check" and not faults:
        shutil.rmtree(folder)
    return tree.report(faults, "site")


if __name__ == "__main__":
    sys.exit(main())
