"""Tests of pack.py and packs.py, on trees of their own.

  pack_test.py [path of cmake]
"""
import contextlib
import io
import lzma
import pathlib
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

import pack
import packs

CMAKE = "cmake"
CORPUS = {"one": b"1", "two": b"22", "empty": b""}
FAMILY = {"case0/x.bin": b"\0\1", "case1/x.bin": b"\0\1", "cases.csv": b"a\n1\n", "manifest.json": b"{}"}


class OwnTree(unittest.TestCase):
    """A tree with one corpus and one family of vectors."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.tree = self.place / "tree"
        (self.tree / "tests" / "fuzz" / "toml").mkdir(parents=True)
        (self.tree / "tests" / "vectors").mkdir()
        rows = [f"linear/{name},u8,2\n" for name in FAMILY if name != "manifest.json"]
        self.index = self.tree / "tests" / "vectors" / "index.csv"
        self.index.write_text("path,dtype,shape_or_rows\n" + "".join(rows))
        (self.tree / "tests" / "vectors" / "README.md").write_text("Vectors.\n")
        self.write("fuzz/toml", CORPUS)
        self.write("vectors/linear", FAMILY)

    def write(self, name, files):
        packs.write(packs.path_of(self.tree, name), files)

    def files(self, name):
        return packs.read(packs.path_of(self.tree, name))

    def folder_of(self, name, files):
        target = self.place / name
        pack.spread(files, target)
        return target

    def run_pack(self, *arguments):
        """(exit status, what it prints)."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = pack.main([str(a) for a in arguments], self.tree)
        return code, out.getvalue()

    def expect_refusal(self, words, *arguments):
        code, text = self.run_pack(*arguments)
        self.assertEqual(code, 1, text)
        self.assertIn(words, text)


class Format(OwnTree):
    def test_equal_files_make_equal_bytes(self):
        first, second = self.place / "a.tar.xz", self.place / "b.tar.xz"
        packs.write(first, CORPUS)
        packs.write(second, dict(reversed(CORPUS.items())))
        self.assertEqual(first.read_bytes(), second.read_bytes())
        self.assertEqual(packs.read(first), CORPUS)

    def test_cmake_unpacks_the_same(self):
        target = self.place / "by_cmake"
        target.mkdir()
        subprocess.run([CMAKE, "-E", "tar", "xf", packs.path_of(self.tree, "vectors/linear")],
                       cwd=target, check=True)
        self.assertEqual(pack.gather([target]), FAMILY)

    def test_no_file_is_left_of_writing(self):
        self.assertEqual([p.name for p in (packs.folder(self.tree) / "fuzz").iterdir()], ["toml.tar.xz"])


class Commands(OwnTree):
    def test_add_takes_new_inputs_under_their_names(self):
        new = self.folder_of("new", {"three": b"333", "again": b"22", "twin": b"333"})
        code, text = self.run_pack("add", "fuzz/toml", new, __file__)
        self.assertEqual((code, text), (0, "fuzz/toml: 2 files added, 2 known already, 5 in all\n"))
        own = pathlib.Path(__file__)
        self.assertEqual(self.files("fuzz/toml"), {**CORPUS, "three": b"333", own.name: own.read_bytes()})

    def test_add_of_what_is_there_changes_no_byte(self):
        path = packs.path_of(self.tree, "vectors/linear")
        before = path.read_bytes()
        self.run_pack("add", "vectors/linear", self.folder_of("same", FAMILY))
        self.assertEqual(path.read_bytes(), before)

    def test_add_keeps_folders_and_equal_files_of_vectors(self):
        new = self.folder_of("new", {"case2/x.bin": b"\0\1", "case2/y.bin": b"y", "case3/y.bin": b"y"})
        self.assertEqual(self.run_pack("add", "vectors/linear", new)[0], 0)
        self.assertEqual(self.files("vectors/linear"), {**FAMILY, **pack.gather([new])})

    def test_add_makes_a_pack(self):
        self.assertEqual(self.run_pack("add", "sdk/texts", self.folder_of("new", CORPUS))[0], 0)
        self.assertEqual(self.files("sdk/texts"), CORPUS)

    def test_add_refuses_and_changes_nothing(self):
        before = self.files("fuzz/toml")
        other = self.folder_of("other", {"one": b"another"})
        self.expect_refusal("remove it first", "add", "fuzz/toml", other)
        self.expect_refusal("without folders", "add", "fuzz/toml", self.folder_of("deep", {"a/b": b"5"}))
        self.expect_refusal("found nothing at", "add", "fuzz/toml", self.place / "missing")
        self.expect_refusal("expected <group>/<name>", "add", "toml", other)
        self.expect_refusal("one content for each name", "add", "fuzz/new", other,
                            self.folder_of("third", {"one": b"third"}))
        self.assertEqual(self.files("fuzz/toml"), before)

    def merger(self, lines):
        program = self.place / "fuzz_toml"
        program.write_text("#!/bin/sh\n" + lines)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    def test_merge_takes_what_the_fuzzer_adds(self):
        program = self.merger('test "$1" = -merge=1 && test -e "$2/one" && cp "$3/good" "$2/by_content"\n')
        new = self.folder_of("new", {"good": b"new", "bad": b"nothing new"})
        self.assertEqual(self.run_pack("add", "fuzz/toml", new, "--merge", program)[0], 0)
        self.assertEqual(self.files("fuzz/toml"), {**CORPUS, "by_content": b"new"})

    def test_merge_that_fails_changes_nothing(self):
        new = self.folder_of("new", {"good": b"new"})
        self.expect_refusal("status 3", "add", "fuzz/toml", new, "--merge", self.merger("exit 3\n"))
        self.assertEqual(self.files("fuzz/toml"), CORPUS)

    def test_remove(self):
        self.assertEqual(self.run_pack("remove", "fuzz/toml", "one", "empty")[0], 0)
        self.assertEqual(self.files("fuzz/toml"), {"two": b"22"})
        self.expect_refusal("expected a file of fuzz/toml", "remove", "fuzz/toml", "one")
        self.expect_refusal("expected one of fuzz/toml, vectors/linear", "remove", "fuzz/none", "one")

    def test_list(self):
        text = self.run_pack("list")[1]
        self.assertRegex(text, r"(?m)^ +3 +3 +\d+  fuzz/toml$")
        self.assertRegex(text, r"(?m)^ +4 +10 +\d+  vectors/linear$")
        self.assertEqual([line.split() for line in self.run_pack("list", "fuzz/toml")[1].splitlines()],
                         [["0", "empty"], ["1", "one"], ["2", "two"]])

    def test_unpack_of_all_vectors_is_a_folder_for_the_tests(self):
        self.assertEqual(self.run_pack("unpack", "vectors", self.place)[0], 0)
        expected = {f"linear/{name}": content for name, content in FAMILY.items()}
        expected["index.csv"] = self.index.read_bytes()
        expected["README.md"] = b"Vectors.\n"
        self.assertEqual(pack.gather([self.place / "vectors"]), expected)
        self.expect_refusal("remove it first", "unpack", "vectors", self.place)

    def test_unpack_of_one(self):
        self.assertEqual(self.run_pack("unpack", "fuzz/toml", self.place)[0], 0)
        self.assertEqual(pack.gather([self.place / "fuzz" / "toml"]), CORPUS)
        self.expect_refusal("expected one of fuzz, vectors, fuzz/toml", "unpack", "fuz", self.place)


class Verify(OwnTree):
    def expect_fault(self, words):
        code, text = self.run_pack("verify")
        self.assertEqual(code, 1, text)
        self.assertIn(words, text)
        self.assertIn(": 1 faults\n", text)

    def write_archive(self, entries):
        """entries: (name, bytes, attributes) of a pack fuzz/toml that pack.py would not write."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, content, attributes in entries:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                for key, value in attributes.items():
                    setattr(entry, key, value)
                tar.addfile(entry, io.BytesIO(content))
        packs.path_of(self.tree, "fuzz/toml").write_bytes(lzma.compress(out.getvalue()))

    def test_a_good_tree(self):
        self.assertEqual(self.run_pack("verify"), (0, "2 packs: 0 faults\n"))

    def test_a_tree_without_packs(self):
        self.index.write_text("path,dtype,shape_or_rows\n")
        for name in packs.names(self.tree):
            packs.path_of(self.tree, name).unlink()
        self.assertEqual(self.run_pack("verify"), (1, "0 packs: 0 faults\n"))

    def test_archives_that_are_not_canonical(self):
        for entries in ([("one", b"1", {"mtime": 1})], [("one", b"1", {"uname": "me"})],
                        [("one", b"1", {"uid": 1})], [("one", b"1", {"mode": 0o755})],
                        [("two", b"2", {}), ("one", b"1", {})]):
            with self.subTest(entries):
                self.write_archive(entries)
                self.expect_fault("found another archive")

    def test_archives_that_cannot_be_read(self):
        for entries, words in (([("../one", b"1", {})], "relative names, found '../one'"),
                               ([("/one", b"1", {})], "relative names, found '/one'"),
                               ([("one", b"", {"type": tarfile.DIRTYPE})], "expected plain files"),
                               ([("one", b"1", {}), ("one", b"2", {})], "found 'one' twice")):
            with self.subTest(entries):
                self.write_archive(entries)
                self.expect_fault(words)
        path = packs.path_of(self.tree, "fuzz/toml")
        path.write_bytes(b"no pack")
        self.expect_fault("expected a file compressed by xz")
        path.write_bytes(lzma.compress(b"no archive"))
        self.expect_fault("expected a tar archive")
        self.write("fuzz/toml", CORPUS)
        path.write_bytes(path.read_bytes()[:-20])
        self.expect_fault("expected a file compressed by xz")

    def test_equal_inputs(self):
        self.write("fuzz/toml", {**CORPUS, "uno": b"1"})
        self.expect_fault("found one and uno equal")

    def test_a_corpus_with_folders(self):
        self.write("fuzz/toml", {**CORPUS, "a/b": b"5"})
        self.expect_fault("without folders, found a/b")

    def test_the_limit_on_corpora(self):
        rest = packs.CORPORA_LIMIT - sum(map(len, CORPUS.values()))
        self.write("fuzz/toml", {**CORPUS, "large": b"x" * rest})
        self.assertEqual(self.run_pack("verify")[0], 0)
        self.write("fuzz/toml", {**CORPUS, "large": b"x" * (rest + 1)})
        self.expect_fault("expected at most 2097152 bytes")

    def test_a_corpus_without_its_target(self):
        self.write("fuzz/tmol", {"a": b"5"})
        self.expect_fault("expected the name of a fuzz target")

    def test_foreign_files(self):
        (packs.folder(self.tree) / "fuzz" / "toml.zip").write_bytes(b"")
        self.expect_fault("toml.zip: expected <group>/<name>.tar.xz only")

    def test_files_and_index_agree(self):
        self.write("vectors/linear", {**FAMILY, "more.bin": b"\0\2"})
        self.expect_fault("has no row for linear/more.bin")
        self.write("vectors/linear", {k: v for k, v in FAMILY.items() if k != "cases.csv"})
        self.expect_fault("lists linear/cases.csv, which no pack holds")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        CMAKE = sys.argv.pop(1)
    unittest.main()
