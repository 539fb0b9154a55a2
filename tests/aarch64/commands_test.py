"""The program octavo for linux-aarch64: what it finds, what it runs, what it says of other processors.

  commands_test.py OCTAVO GOLDEN EMULATOR...

GOLDEN: a folder with the plugin minimal for linux-x86_64.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

OCTAVO, GOLDEN, *EMULATOR = sys.argv[1:]

MANIFEST = """manifest_version = 1
[plugin]
name = "minimal"
version = "1.0.0"
description = "a library of another processor"
[abi]
major = 1
minor = 0
[library]
linux-aarch64 = "minimal.so"
"""


def octavo(*arguments):
    return subprocess.run([*EMULATOR, OCTAVO, *arguments], capture_output=True, text=True, timeout=120, check=False)


class Commands(unittest.TestCase):
    def test_the_plugins_of_the_build_are_usable(self):
        plugins = json.loads(octavo("plugin", "list", "--json").stdout)["plugins"]
        self.assertEqual({p["name"]: p["usable"] for p in plugins}, dict.fromkeys(("msamp", "reference", "te"), True))

    def test_each_backend_runs_after_the_helper_has_tried_it(self):
        for backend in ("te", "msamp", "reference"):
            said = octavo("check", "--set", f"fp8.backend={backend}")
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
            self.assertIn(f"backend    {backend} ", said.stdout)

    def test_a_plugin_without_a_library_for_this_platform_is_refused(self):
        said = octavo("check", "--plugin-dir", GOLDEN, "--set", "fp8.backend=minimal")
        self.assertEqual(said.returncode, 1)
        self.assertIn('expected a file for this platform, linux-aarch64 = "minimal.so", found linux-x86_64\n', said.stdout)

    def test_a_library_of_another_processor_is_refused_before_it_is_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "minimal.so").write_bytes(pathlib.Path(GOLDEN, "minimal.so").read_bytes())
            pathlib.Path(folder, "minimal.octavo-plugin.toml").write_text(MANIFEST)
            said = octavo("check", "--plugin-dir", folder, "--set", "fp8.backend=minimal")
        self.assertEqual(said.returncode, 1)
        self.assertIn("expected a library for this processor, 64-bit aarch64, found one for 64-bit x86-64", said.stdout)

    def test_the_doctor_finds_nothing_to_fix(self):
        said = octavo("doctor")
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)


if __name__ == "__main__":
    del sys.argv[1:]
    unittest.main()
