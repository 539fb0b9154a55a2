"""The tests of golden vectors read what index.csv of their folder lists, and fail where a file is missing.

  vectors_test.py <kernels_golden_linear_test> <folder of unpacked vectors>

Each case here is a folder of its own, which OCTAVO_VECTORS names.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, VECTORS = pathlib.Path(), pathlib.Path()
FIRST = "linear/case00_M16_K32_N16_current"


class Linear(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)

    def list_rows(self, start):
        """Copies the files whose path begins with `start`, and lists them alone."""
        header, *rows = (VECTORS / "index.csv").read_text().splitlines(keepends=True)
        rows = [row for row in rows if row.startswith(start)]
        self.assertTrue(rows, f"no row of index.csv begins with {start}")
        (self.folder / "index.csv").write_text(header + "".join(rows))
        for name in (row.split(",")[0] for row in rows):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(VECTORS / name, self.folder / name)

    def run_program(self):
        return subprocess.run([PROGRAM], env={**os.environ, "OCTAVO_VECTORS": str(self.folder)},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def expect_pass(self):
        result = self.run_program()
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("[  PASSED  ] 1 test", result.stdout)

    def expect_failure(self, words):
        result = self.run_program()
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertIn(words, result.stdout)

    def test_every_row_of_the_family(self):
        self.list_rows("linear/")
        self.expect_pass()

    def test_one_case_alone(self):
        self.list_rows(FIRST + "/")
        self.expect_pass()

    def test_a_listed_array_is_missing(self):
        self.list_rows("linear/")
        (self.folder / FIRST / "dw.bin").unlink()
        self.expect_failure(f"cannot read {self.folder}/{FIRST}/dw.bin")

    def test_a_listed_table_is_missing(self):
        self.list_rows("linear/")
        (self.folder / FIRST / "scales.csv").unlink()
        self.expect_failure(f"cannot read {self.folder}/{FIRST}/scales.csv")

    def test_a_listed_array_is_short(self):
        self.list_rows("linear/")
        path = self.folder / FIRST / "dw.bin"
        path.write_bytes(path.read_bytes()[:-1])
        self.expect_failure(f"{FIRST}/dw.bin has 4095 bytes, index.csv says 4096")

    def test_a_family_without_rows(self):
        self.list_rows("scale/")
        self.expect_failure("cases.empty()")

    def test_a_folder_without_index(self):
        self.expect_failure(f"cannot read {self.folder}/index.csv")


if __name__ == "__main__":
    PROGRAM, VECTORS = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
