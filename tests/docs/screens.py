"""The pictures of commands in a terminal of 80 columns, in docs/pictures.

  screens.py <octavo> <docs/pictures>           compares the folder with what the commands show now
  screens.py --write <octavo> <docs/pictures>   takes the pictures
  screens.py --self-test

Words that depend on the machine may differ: compared are the names of rows, which stand in the first column with two
blanks behind them, and questions.
Each SVG has a background of its own, and other colours where the reader's system is dark.
"""
import html
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile
import time

COLUMNS = 80
WAIT = 60.0  # for the next output of a command
QUIET = 0.5  # without output, a menu is complete
ENTER, DOWN, LEAVE = b"\r", b"\x1b[B", b"q"
MODEL = '{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "vocab_size": 50257, "n_positions": 1024}\n'
# name -> (title, arguments, keys that lead to the menu that is shown)
SCREENS = {
    "init": ("octavo init asks for the recipe", ["init"], [ENTER, ENTER, DOWN]),
    "doctor": ("octavo doctor: the machine, the plugins, and what would run", ["doctor", "octavo.toml"], None),
    "check": ("octavo check: what would run, and where each option comes from", ["check", "octavo.toml"], None),
    "estimate": ("octavo estimate: the memory of GPT-2 with each backend",
                 ["estimate", "config.json", "--batch", "8", "--sequence", "1024"], None),
}
WIDTH, LINE, LEFT, TOP = 700, 18, 14, 26
STYLE = """text{font:13.5px ui-monospace,monospace;fill:#222;white-space:pre}.page{fill:#fcfcfa;stroke:#c8c8c4}
.dim{fill:#8a8a86}.bar{fill:#dcdcd6}.bold{font-weight:bold}.red{fill:#b3261e;font-weight:bold}.green{fill:#1b6e2e;font-weight:bold}
.yellow{fill:#8a6100;font-weight:bold}.command{fill:#1f5f9f}
@media (prefers-color-scheme:dark){text{fill:#e6e6e6}.page{fill:#1c1f26;stroke:#3a3f4a}.dim{fill:#8b909b}
.bar{fill:#3a4250}.red{fill:#ff8a80}.green{fill:#7ddc94}
.yellow{fill:#ffd27a}.command{fill:#8ec3ff}}"""
CODES = {"0": "", "1": "bold", "2": "dim", "7": "bar", "1;31": "red", "1;32": "green", "1;33": "yellow"}


class Terminal:
    """A screen that only grows: what the commands' output needs of a terminal."""

    def __init__(self):
        self.lines, self.row, self.column, self.style = [[]], 0, 0, ""

    def feed(self, text):
        for part in re.split(r"(\x1b\[[0-9;]*[A-Za-z]|\r|\n)", text):
            if part == "\n":
                self.row, self.column = self.row + 1, 0
            elif part == "\r":
                self.column = 0
            elif part.startswith("\x1b["):
                self.escape(part[2:-1], part[-1])
            else:
                for character in part:
                    self.put(character)

    def escape(self, number, kind):
        if kind == "A":
            self.row = max(0, self.row - int(number or 1))
        elif kind == "K":
            del self.line()[self.column:]
        elif kind == "m" and (number or "0") in CODES:
            self.style = CODES[number or "0"]
        else:
            raise ValueError(f"expected codes that move up, clear a line or set {sorted(CODES)}, found {number}{kind}")

    def line(self):
        while len(self.lines) <= self.row:
            self.lines.append([])
        return self.lines[self.row]

    def put(self, character):
        if self.column == COLUMNS:
            self.row, self.column = self.row + 1, 0
        line = self.line()
        line.extend([(" ", "")] * (self.column - len(line)))
        line[self.column:self.column + 1] = [(character, self.style)]
        self.column += 1

    def text(self):
        return ["".join(c for c, _ in line).rstrip() for line in self.lines]


def read_some(master, seconds):
    """What comes within the time; None at the end of the program."""
    if not select.select([master], [], [], seconds)[0]:
        return b""
    try:
        return os.read(master, 65536) or None
    except OSError:  # the program closed its side
        return None


def capture(command, folder, environment, keys):
    """The screen when the program has ended or, with keys, when the menu that they lead to is there."""
    master, slave = pty.openpty()
    subprocess.run(["stty", "cols", str(COLUMNS), "rows", "50"], stdin=slave, check=True)
    program = subprocess.Popen(command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown, remaining, end = b"", list(keys or []), time.monotonic() + WAIT
    while (some := read_some(master, QUIET if keys else 1)) is not None:
        shown += some
        if some:
            continue
        if keys and remaining and shown:
            os.write(master, remaining.pop(0))
        elif keys and shown:
            break
        elif time.monotonic() > end:
            program.kill()
            raise SystemExit(f"{' '.join(command)} shows nothing more for {WAIT:g} s")
    if keys:
        os.write(master, LEAVE)
        while read_some(master, 5) is not None:
            pass
    program.wait()
    os.close(master)
    return shown.decode()


def screen(octavo, name):
    """The lines of one command, each a list of (character, style)."""
    _, arguments, keys = SCREENS[name]
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder, "home")
        home.mkdir()
        pathlib.Path(folder, "config.json").write_text(MODEL, encoding="utf-8")
        environment = {"HOME": str(home), "TERM": "xterm", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8",
                       **{k: v for k, v in os.environ.items() if k in ("LD_LIBRARY_PATH", "ASAN_OPTIONS")}}
        if "octavo.toml" in arguments:
            subprocess.run([octavo, "init", "--yes"], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        shown = capture([octavo, *arguments], folder, environment, keys)
    library = str(pathlib.Path(octavo).resolve().parents[1] / "lib")
    terminal = Terminal()
    terminal.feed(shown.replace(library, "/usr/lib").replace(str(home), "~"))
    while terminal.lines and not terminal.lines[-1]:
        terminal.lines.pop()
    return terminal


def runs(line):
    """(column, text, style) of what has one style."""
    start = 0
    for column in range(1, len(line) + 1):
        if column == len(line) or line[column][1] != line[start][1]:
            yield start, "".join(c for c, _ in line[start:column]), line[start][1]
            start = column


def drawn(name, terminal):
    title, arguments, _ = SCREENS[name]
    step = (WIDTH - 2 * LEFT) / COLUMNS
    height = TOP + LINE * (len(terminal.lines) + 1)
    shapes = [f'<text x="{LEFT}" y="{TOP}" class="command">$ octavo {html.escape(" ".join(arguments))}</text>']
    for row, line in enumerate(terminal.lines):
        y = TOP + LINE * (row + 1)
        for column, text, style in runs(line):
            x = LEFT + step * column
            if style == "bar":
                shapes.append(f'<rect x="{x:g}" y="{y - 13}" width="{step * len(text):g}" height="{LINE}" class="bar"/>')
            if text.strip():
                shapes.append(f'<text x="{x:g}" y="{y}" textLength="{step * len(text):g}" '
                              f'class="{"" if style == "bar" else style}">{html.escape(text)}</text>')
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
                      f'viewBox="0 0 {WIDTH} {height}" role="img" xml:space="preserve">',
                      f"<title>{html.escape(title)}</title>", f"<style>{STYLE}</style>",
                      f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6" class="page"/>',
                      *shapes, "</svg>"]) + "\n"


def heads(lines):
    """The names of rows, without repetitions, and questions."""
    words = [found[0] for line in lines if (found := re.match(r"\S+(?: \S+)?(?=  )|\S.*\?$", line))]
    return [word for i, word in enumerate(words) if i == 0 or words[i - 1] != word]


def lines_of(svg):
    """The lines of a picture, by the places of its texts."""
    step, rows = (WIDTH - 2 * LEFT) / COLUMNS, {}
    for x, y, text in re.findall(r'<text x="([0-9.]+)" y="(\d+)" textLength[^>]*>([^<]*)<', svg):
        row = rows.setdefault(int(y), "")
        rows[int(y)] = row.ljust(round((float(x) - LEFT) / step)) + html.unescape(text)
    return [rows[y] for y in sorted(rows)]


def stale(name, svg, terminal):
    """Why a picture is not of the program, or ""."""
    before, now = heads(lines_of(svg)), heads(terminal.text())
    if before != now:
        return f"screen_{name}.svg shows {before}, octavo shows {now}; to repair: screens.py --write"
    return ""


def main(octavo, folder, write):
    octavo = str(pathlib.Path(octavo).resolve())
    faults = []
    for name in SCREENS:
        terminal, file = screen(octavo, name), pathlib.Path(folder, f"screen_{name}.svg")
        if not heads(terminal.text()):
            faults.append(f"octavo {name} shows nothing: {terminal.text()}")
        elif write:
            file.write_text(drawn(name, terminal), encoding="utf-8")
        elif not file.is_file():
            faults.append(f"{file} is missing; to repair: screens.py --write")
        elif fault := stale(name, file.read_text(encoding="utf-8"), terminal):
            faults.append(fault)
    for fault in faults:
        print(fault)
    print(f"{len(SCREENS)} screens: {len(faults)} faults")
    return 1 if faults else 0


def self_test():
    terminal = Terminal()
    terminal.feed("one 1\r\ntwo\r\n\x1b[2A\r\x1b[K\x1b[7mONE 2\x1b[0m\r\n\r\x1b[K\x1b[2mtwo\x1b[0m\r\n" + "x" * 81)
    assert terminal.text() == ["ONE 2", "two", "x" * 80, "x"], terminal.text()
    assert terminal.lines[0][0] == ("O", "bar") and terminal.lines[1][2] == ("o", "dim")
    svg = drawn("init", terminal)
    assert lines_of(svg) == terminal.text(), lines_of(svg)
    assert not stale("init", svg, terminal)
    terminal.feed("\r\nthree  3")
    assert stale("init", svg, terminal)
    try:
        terminal.feed("\x1b[3J")
    except ValueError:
        return 0
    raise AssertionError("a code that is unknown was ignored")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    write = sys.argv[1] == "--write"
    sys.exit(main(*sys.argv[2 if write else 1:], write))
