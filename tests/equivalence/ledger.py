"""The ledger: one line of JSON for each run that has ended, appended and on disk before the next one.

A line with "accept" instead says why runs of other plans or other builds stay in the study.
"""
import contextlib
import fcntl
import json
import os
import pathlib

from errors import StudyError, expect

FIELDS = {"recipe", "seed", "loss", "skipped", "seconds", "plan", "settings", "build", "cpu"}


class Ledger:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.runs, self.accepted = [], []
        self._file = None
        content = self.path.read_text() if self.path.exists() else ""
        # A line without an end is of a program that died while it wrote.
        for number, line in enumerate(content.split("\n")[:-1], 1):
            self._read(number, line)

    def _read(self, number, line):
        where = f"{self.path}:{number}"
        try:
            record = json.loads(line)
        except ValueError as e:
            raise StudyError(where, "a line of JSON", str(e), "Restore the ledger.") from e
        if isinstance(record, dict) and "accept" in record:
            self.accepted.append(record["accept"])
            return
        expect(isinstance(record, dict) and set(record) == FIELDS, where, f"the fields {sorted(FIELDS)}",
               line[:100], "Restore the ledger.")
        expect(self.find(record["recipe"], record["seed"]) is None, where, "each run once",
               f"{record['recipe']} of seed {record['seed']} again", "Restore the ledger.")
        self.runs.append(record)

    def find(self, recipe, seed):
        return next((r for r in self.runs if (r["recipe"], r["seed"]) == (recipe, seed)), None)

    @contextlib.contextmanager
    def open(self):
        """For appending: one program at a time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a+b") as self._file:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                raise StudyError(str(self.path), "no other program that runs this study", str(e),
                                 "Wait until it ends, or end it.") from e
            self._file.seek(0)
            self._file.truncate(self._file.read().rfind(b"\n") + 1)
            yield

    def append(self, record):
        self._file.write(json.dumps(record, sort_keys=True).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        (self.accepted if "accept" in record else self.runs).append(record.get("accept", record))

    def foreign(self, kind, own):
        """Of `kind` "plan" or "build": what runs were made under, but for `own` and what was accepted with it."""
        known = {own}
        for accepted in reversed(self.accepted):  # the last one names all before it
            if known & set(accepted[kind]):
                known.update(accepted[kind])
        return sorted({r[kind] for r in self.runs} - known)

    def guard(self, plan, build=None):
        """Refuses runs of another plan, and runs of several builds; `build`: the one that comes next."""
        build = build or (self.runs[0]["build"] if self.runs else "")
        for kind, own in (("plan", plan.hash), ("build", build)):
            for other in self.foreign(kind, own):
                count = sum(r[kind] == other for r in self.runs)
                raise StudyError(str(self.path), f"runs of {kind} {own}", f"{count} runs of {kind} {other}",
                                 "Restore what made them, or say why they count: study.py accept --reason TEXT.")
