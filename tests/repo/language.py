"""Keeps the language plain: prose of pages, docstrings, comments of the public headers and texts for users avoid the
patterns of PATTERNS, each with what to write.

  language.py <root>
  language.py --update <root>   lowers the budget to what a file still has
  language.py --areas <root>    prints the hits of each area
  language.py --self-test

What was there before the rule is counted in language_budget.csv, by file; a file without a row has none. More hits than
the budget are faults, and so are fewer: --update lowers a budget and never raises one.
"""
import collections
import csv
import io
import pathlib
import re
import sys
import tempfile
import tokenize

import tree

BUDGET = "tests/repo/language_budget.csv"
SENTENCE = r"(?=\x20[^.?|\n]*(\n(?!\n|#)[^.?|\n]*){0,3}\.)"  # what is no question and no heading
MAKERS = "Accelerate|DeepSpeed|transformers|Hugging Face|torch|PyTorch|Debian|CMake|JAX|LibTorch"
# What plain technical English does not need, as patterns, and what to write. (?-i:...) minds capitals: a sentence's start.
PATTERNS = {
    "lies": "is, is stored", "lie": "are, are stored", "beside": "next to, in addition to",
    "mend": "fix", "mends": "fixes", "mended": "fixed", "for ever": "forever, indefinitely",
    "is told": "gets, learns", "are told": "get, learn", "it says": "name who or what",
    "is said": "name who or what", "begin(s|ning)?": "start", "beg[au]n": "started", "in (the )?place of": "instead of",
    "as (ever|always)": "as usual, unchanged", "of (yours|ours|theirs)": "your X, our X, their X",
    "(is|are) (?-i:none)": "is not one, are not", "whoever": "anyone who, if you", "in print": "printed",
    "in the making": "not frozen, not finished", "shared out": "distributed", "without end": "indefinitely",
    "to be pasted": "that you can paste", "found out": "determined", "of (before|now|then|today)": "previous, current",
    "(hears|hear|learns) of": "gets, is notified", "hands? on": "passes", "lends?": "gives, passes",
    "in (every bit|all bits)|to the last bit|bit for bit": "bit-identical",
    "the bits of|(the )?(same|equal) bits": "bit-identical to X",
    "(stays?|keeps?|left|runs?) (with|in) the host": "is not converted, stays in bf16",
    r"(?<=,)\s+too(?! (few|large|late|little|long|many|much|new|old|short|small)\b)": "also, before the verb",
    "(of|with|by|for|to|from|on|than|as|over|without) what(?! to\\b)": "name the thing: 'the layers that run', not 'what runs'",
    rf"(?-i:What){SENTENCE}": "name the thing, or start with 'The X that'",
    rf"(?!(and|or|one|\d+) )\w+ of ({MAKERS})(?!\.|'s)": "the name first: 'Accelerate's config.yaml', 'a torch optimizer'",
    "(those|that) of": "repeat the noun",
    r"of (its|their|your|my|our|one's) own(?! (?!(and|as|at|by|for|from|in|is|on|or|that|to|which|with)\b)\w)": "its own X, a separate X",
    r"(?<!let\x20)(?<!stand\x20)alone": "only, before the noun",
    "ends? (with (exit|code|status|an? (error|signal|exception))|by)": "exits with, stops, raises",
    r"(?<!it\x20)says": "shows, prints, explains",
    "(?-i:Nothing|Nobody|None of)": "state what happens",
    r"(by|of|in|with|from|(?<!depends\x20)on|for|to|at) which(?![^.\n]*\?)": "that ... with, or two sentences",
    r"(?<!there\x20)(is|are) no(?! (longer|more|less|such|other|one)\b)": "is not a, has no",
    "asks? for": "sets, requires, requests", "wants": "requires, needs",
    rf"(?-i:Who){SENTENCE}": "Anyone who, if you", "for (people|programs)": "human-readable, machine-readable",
}
WORDS = [(re.compile(rf"(?<!\w)(?:{word.replace(' ', chr(92) + 's+')})(?!\w)", re.I), better)
         for word, better in PATTERNS.items()]
# A test's name helps who changes Octavo, not who uses it: in pages for users, code included.
TEST_NAME = re.compile(r"\btest_\w+")
USER_PAGES = re.compile(r"README\.md|samples/.*\.md|docs/(?!(testing|releasing|proofs|abi|architecture|writing_\w+)\.md)[^/]*\.md"
                        r"|docs/(migrate|reasons)/.*\.md")
NOT_PROSE = (r"^ *```.*?^ *```", r"<!--.*?-->")
SPEAKS = ("sdk/cli/", "sdk/src/", "plugins/", "kernels/", "host_adapters/")  # folders whose texts users see
HEADERS = ("sdk/include/octavo/", "host_adapters/torch/cpp/include/")        # whose comments users read
C_TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'|^[ \t]*\#[ \t]*include[^\n]*""", re.S | re.M)


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def code(text):
    """The same for code between texts, with a mark: only white space lets two literals be one text."""
    return re.sub(r"\S", "|", text)


def without(text, *patterns):
    """The text with spaces where a pattern matches, so that lines and columns stay."""
    for pattern in patterns:
        text = re.sub(pattern, lambda m: blank(m.group(0)), text, flags=re.S | re.M)
    return text


def of_c(text, has_comments):
    """The string literals of C++, and its comments."""
    out, last = [], 0
    for token in C_TOKEN.finditer(text):
        found = token.group(0)
        if found.startswith('"'):
            found = " " + re.sub(r"\\.", "  ", found[1:-1]) + " "
        elif has_comments and found.startswith("/"):
            found = re.sub(r"^[ \t]*[/*]+(?:[ \t]|$)", lambda m: " " * len(m.group(0)), found, flags=re.M)
        else:
            found = blank(found)
        out += [code(text[last:token.start()]), found]
        last = token.end()
    return "".join(out) + code(text[last:])


def of_python(text):
    """The string literals of Python, docstrings among them."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    out, last = [], 0
    kinds = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
            kept = without(text[begin:end], r"[\"']|\\[^\n]|\A\w{1,2}(?=[\"'])")
            if re.match(r"\w?[fF]", text[begin:end]):
                kept = without(kept, r"\{[^{}]*\}")
            out += [code(text[last:begin]), kept]
            last = end
    return "".join(out) + code(text[last:])


def prose(path, text):
    """What a reader reads of a file, with its lines and columns; None where the rule does not apply."""
    name = path.as_posix()
    if path.suffix == ".md":
        return without(text, *NOT_PROSE, r"(?<=\])\([^)\s]+\)", r"`[^`\n]*`")
    if path.suffix in (".cpp", ".h", ".hpp", ".cu", ".cuh", ".toml") and name.startswith(SPEAKS + HEADERS):
        return of_c(text, name.startswith(HEADERS))
    if path.suffix == ".py" and name.startswith(("host_adapters/", "samples/")):
        return of_python(text)
    return None


def hits(path, text):
    """(line, what was found, what to write) of a file, in its order."""
    read = prose(path, text)
    if read is None:
        return []
    found = [(m.start(), m.group(0), better) for word, better in WORDS for m in word.finditer(read)]
    if USER_PAGES.fullmatch(path.as_posix()):
        found += [(m.start(), m.group(0), "the behaviour; names of tests belong to proofs and data")
                  for m in TEST_NAME.finditer(without(text, *NOT_PROSE))]
    return [(text.count("\n", 0, at) + 1, " ".join(what.split())[:60], better) for at, what, better in sorted(found)]


def budgets(root):
    path = pathlib.Path(root) / BUDGET
    if not path.is_file():
        return {}
    with open(path, encoding="utf-8", newline="") as file:
        return {row["file"]: int(row["hits"]) for row in csv.DictReader(file)}


def all_hits(root):
    found = {path.as_posix(): hits(path, tree.text(root, path)) for path in tree.files(root)}
    return {name: of_file for name, of_file in found.items() if of_file}


def check(root):
    found, budget, faults = all_hits(root), budgets(root), []
    for name in sorted(set(found) | set(budget)):
        mine, allowed = found.get(name, []), budget.get(name, 0)
        if len(mine) > allowed:
            faults += [f"{name}:{line}: '{what}', write: {better}" +
                       (f" ({len(mine)} hits in this file, its budget is {allowed})" if allowed else "")
                       for line, what, better in mine]
        elif len(mine) < allowed:
            faults.append(f"{name}: {len(mine)} hits, its budget is {allowed}; lower the budget: "
                          "python3 tests/repo/language.py --update .")
    print(f"{sum(map(len, found.values()))} hits within the budget of {sum(budget.values())} in {len(budget)} files")
    return faults


def update(root):
    """Lowers each budget to its file's hits; a file that is gone or has none loses its row."""
    found = all_hits(root)
    lowered = {name: min(allowed, len(found.get(name, []))) for name, allowed in budgets(root).items()}
    with open(pathlib.Path(root) / BUDGET, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "hits"])
        writer.writerows(sorted((name, count) for name, count in lowered.items() if count))
    return check(root)


def areas(root):
    count = collections.Counter()
    for name, found in all_hits(root).items():
        kind = "Markdown" if name.endswith(".md") else pathlib.PurePosixPath(name).suffix[1:]
        count[f"{kind:10} {name.split('/')[0] if '/' in name else '.'}"] += len(found)
    for area, number in sorted(count.items()):
        print(f"{area:30} {number:5}")
    print(f"{'all':30} {sum(count.values()):5}")


# A file with its hits, as `line: found`, and one that has none.
PLANTED = {
    "README.md": ("# As ever\n\nIt begins in the\nplace of mine, too. It is, too small, too.\n\n`lies` [a](b,too.md)\n"
                  "<!-- lies -->\n```sh\nmend\n```\nStored for\never beside it, says `test_a`.\n",
                  ["1: As ever", "3: begins", "3: in the place of", "4: too", "4: too", "11: for ever", "12: beside",
                   "12: says", "12: test_a"]),
    "docs/testing.md": ("`test_a` and a callback of Accelerate, of its own.\nBy its own, of its own\nstep, depends on which.\n", ["1: callback of Accelerate", "1: of its own"]),
    "docs/good.md": ("# What it needs\n\nWhat is FP8? There is no stand alone file, and it is no longer there.\n", []),
    "docs/bad.md": ("What runs is listed.\nWho reads it is no user. The end of which Nobody sees.\n",
                    ["1: What", "2: Who", "2: is no", "2: of which", "2: Nobody"]),
    "docs/within.md": ("It lies.\n", ["1: lies"]), "docs/fewer.md": ("It is.\n", []),
    "sdk/cli/x.cpp": ('#include "lies.h"\n// begins\nint c = \'"\';\nsay("It starts,\\n" "too.", "ex\\"lies");\n'
                      'f("1 to ", n, "what is");\n', ["4: too", "4: lies"]),
    "sdk/include/octavo/x.h": ("/* It lies\n * beside\n */\nint lies; // bit\n// for bit\n",
                               ["1: lies", "2: beside", "4: bit for bit"]),
    "host_adapters/x.py": ('"""It\n    lies."""\nlies = f"it says {beside}"  # whoever\n', ["2: lies", "3: it says"]),
    "tests/x.py": ('"""It lies."""\n', []),
}


def self_test():
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        for name, (text, _) in PLANTED.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        for name, (text, expected) in PLANTED.items():
            found = [f"{line}: {what}" for line, what, _ in hits(pathlib.PurePosixPath(name), text)]
            if found != expected:
                wrong.append(f"{name}: expected {expected}, found {found}")
        (root / BUDGET).parent.mkdir(parents=True, exist_ok=True)
        (root / BUDGET).write_text("file,hits\ndocs/bad.md,4\ndocs/fewer.md,1\ndocs/within.md,1\n")
        faults = check(root)
        for line in ("docs/bad.md:2: 'is no', write: is not a, has no (5 hits in this file, its budget is 4)",
                     "docs/testing.md:1: 'of its own', write: its own X, a separate X",
                     "docs/fewer.md: 0 hits, its budget is 1; lower the budget: python3 tests/repo/language.py --update ."):
            if line not in faults:
                wrong.append(f"expected the fault {line!r}, found {faults}")
        if any(fault.startswith("docs/within.md") for fault in faults):
            wrong.append(f"a file within its budget: {faults}")
        update(root)
        if budgets(root) != {"docs/bad.md": 4, "docs/within.md": 1}:
            wrong.append(f"--update: expected no row raised and no row of a file without hits, found {budgets(root)}")
    return tree.report(wrong, f"{len(PLANTED)} planted files")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--update":
        sys.exit(tree.report(update(sys.argv[2]), "language"))
    if len(sys.argv) == 3 and sys.argv[1] == "--areas":
        sys.exit(areas(sys.argv[2]))
    tree.main(__doc__, check, self_test, "language")
