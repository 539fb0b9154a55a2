"""The clauses of docs/abi.md and those that `octavo plugin verify --list` names are the same: clauses.py <octavo> <abi.md>"""
import pathlib
import re
import subprocess
import sys

listed = subprocess.run([sys.argv[1], "plugin", "verify", "--list"], capture_output=True, text=True, check=True).stdout
named = {c for line in listed.splitlines() for c in re.search(r"\(([A-Z0-9 ]+)\)$", line)[1].split()}
written = set(re.findall(r"^- \*\*([A-Z]\d+)\*\* ", pathlib.Path(sys.argv[2]).read_text(), re.M))
print("named by no check:", sorted(written - named), "missing in docs/abi.md:", sorted(named - written))
sys.exit(0 if named == written else 1)
