"""Applies a remedy as `octavo check` prints it: an edit of a file, or a command for a shell."""
import os
import pathlib
import re
import subprocess


def file_lines(path):
    return pathlib.Path(path).read_bytes().decode(errors="surrogateescape").split("\n")


def store(path, lines):
    pathlib.Path(path).write_bytes("\n".join(lines).encode(errors="surrogateescape"))


def apply(text, situation):
    """Changes files, situation.environment, situation.overrides or situation.config."""
    if match := re.fullmatch(r"run `(.*)`", text, re.S):
        done = subprocess.run(["bash", "-c", match[1] + " && env -0"], capture_output=True,
                              env=situation.environment, cwd=situation.directory, check=True)
        pairs = done.stdout.decode(errors="surrogateescape").split("\0")
        situation.environment = dict(p.split("=", 1) for p in pairs if "=" in p)
    elif match := re.fullmatch(r"replace lines? (\d+)(?: to (\d+))? of (.+?) by `(.*)`", text, re.S):
        first, last = int(match[1]), int(match[2] or match[1])
        lines = file_lines(match[3])
        store(match[3], lines[:first - 1] + [match[4]] + lines[last:])
    elif match := re.fullmatch(r"delete lines? (\d+)(?: to (\d+))? of (.+)", text):
        first, last = int(match[1]), int(match[2] or match[1])
        lines = file_lines(match[3])
        store(match[3], lines[:first - 1] + lines[last:])
    elif match := re.fullmatch(r"add `(.*)` (?:as the first line|after line (\d+)) of (.+)", text):
        lines = file_lines(match[3])
        store(match[3], lines[:int(match[2] or 0)] + [match[1]] + lines[int(match[2] or 0):])
    elif match := re.fullmatch(r"set `(.*)`", text):
        situation.config = os.path.join(situation.directory, "octavo.toml")
        with open(situation.config, "a", encoding="utf-8") as file:
            file.write(match[1] + "\n")
    elif match := re.fullmatch(r"override `([^` ]+)` instead of `(.*)`", text):
        situation.overrides[match[1]] = situation.overrides.pop(match[2])
    elif match := re.fullmatch(r"override `([^` ]+) = (.*)`", text):
        situation.overrides[match[1]] = match[2]
    elif match := re.fullmatch(r"drop the override `(.*)`", text):
        del situation.overrides[match[1]]
    else:
        raise ValueError(f"no way to apply: {text}")
