"""A copy of the tree with a build of its own, in which one source at a time is another: the tree itself never changes."""
import contextlib
import fcntl
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from groups import GROUPS, ROOT

GIB = 2 ** 30
FAILED = re.compile(r"^\[  FAILED  \] ([\w./]+)", re.M)


class Scratch:
    """Of a folder, which one run at a time may use."""

    def __init__(self, folder, preset="cpu", options=()):
        self.folder, self.build = folder.resolve(), folder.resolve() / "build" / preset
        self.preset, self.options = preset, options
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = open(self.folder / "lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"error: another run uses {self.folder}; wait, or name another folder with --folder")

    def refresh(self):
        """Makes the copy equal to the tree. What is equal keeps its time, so that ninja does not compile it again."""
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"], check=True,
                               capture_output=True).stdout.decode().split("\0")
        for name in filter(None, names):
            source, target = ROOT / name, self.folder / name
            if not source.is_file() or (target.is_file() and target.read_bytes() == source.read_bytes()):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def configure(self):
        """With ccache as tests/run.sh has it, which compiles nothing twice."""
        sources = ";".join(file for group in GROUPS for file in group.files())
        subprocess.run(
            ["bash", "-c", 'source tests/environment/packages.sh; use_ccache "$PWD"; '
             f'exec cmake --preset {self.preset} "${{OCTAVO_COMPILER_LAUNCHER[@]}}" "$@"', "cmake", *self.options,
             f"-DCMAKE_PROJECT_octavo_INCLUDE={self.folder}/tests/mutation/apart.cmake", f"-DOCTAVO_MUTATED={sources}",
             "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def make(self, *targets, cached=True):
        """Whether these could be built, and what ninja said. cached: what is compiled will be compiled again."""
        script = 'source tests/environment/packages.sh; use_ccache "$PWD"; exec ninja -C "$1" -j1 "${@:2}"'
        done = subprocess.run(["bash", "-c", script, "ninja", self.build, *targets], cwd=self.folder, capture_output=True, text=True,
                              errors="replace", check=False, env={**os.environ, **({} if cached else {"CCACHE_DISABLE": "1"})})
        return done.returncode == 0, done.stdout + done.stderr

    def object_of(self, file):
        return "sdk/CMakeFiles/octavo.dir/" + file.removeprefix("sdk/") + ".o"

    def code_of(self, file):
        """The bytes of a file's object without debug information: equal for equal code."""
        with tempfile.NamedTemporaryFile() as out:
            subprocess.run(["objcopy", "--strip-debug", "--remove-section=.comment", self.build / self.object_of(file),
                            out.name], check=True)
            return pathlib.Path(out.name).read_bytes()

    @contextlib.contextmanager
    def with_text(self, file, text):
        path = self.folder / file
        before = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(before)

    def test(self, group, limits=None):
        """(the case, signal or exit code that ended the tests, or None; the seconds of each run). limits: seconds, alike."""
        seconds = []
        for index, (program, cases) in enumerate(group.runs()):
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
                code, said = run([self.build / "tests" / program, "--gtest_brief=1", "--gtest_fail_fast",
                                  f"--gtest_filter={cases}"], home, limits and limits[index])
            seconds.append(time.monotonic() - begin)
            if code != 0:
                found = FAILED.search(said)
                return found[1] if found else "timeout" if code is None else f"{program} ends with {code}", seconds
        return None, seconds


def bound():
    """For a mutant that allocates or writes without end."""
    resource.setrlimit(resource.RLIMIT_AS, (8 * GIB, 8 * GIB))
    resource.setrlimit(resource.RLIMIT_FSIZE, (GIB, GIB))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(command, home, limit):
    """(exit code, what was printed); the code is None after so many seconds. Its processes end with it."""
    places = {name: home for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    with subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          start_new_session=True, preexec_fn=bound, env={**os.environ, **places}) as process:
        try:
            said, _ = process.communicate(timeout=limit)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
