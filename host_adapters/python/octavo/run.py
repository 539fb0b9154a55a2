"""`octavo run [OPTIONS] SCRIPT ARGS`, or `-m MODULE ARGS`: an unchanged program whose FP8 is Octavo's.

It is the only place of this package that changes what belongs to another one, and only in the process of the program.
docs/run.md lists its changes.
"""
import functools
import importlib.abc
import importlib.util
import inspect
import os
import runpy
import sys

from . import launched, session_run
from .errors import InvalidError, OctavoError

USAGE = """usage: octavo run [OPTIONS] SCRIPT [ARGS ...]
       octavo run [OPTIONS] -m MODULE [ARGS ...]
       accelerate launch ... -m octavo.run [OPTIONS] SCRIPT [ARGS ...]
Runs an Accelerate or Trainer program, unchanged, with Octavo's FP8.
  --config FILE            an octavo.toml
  --fp8-state saved|anew   anew: a checkpoint's FP8 state is not read, and scales start anew"""
_VARIABLE = "ACCELERATE_MIXED_PRECISION"


class _Afterwards(importlib.abc.MetaPathFinder):
    """Calls a function with a module when it was loaded: {name: function}. It imports no module itself, since a program may
    set variables before its first import."""

    def __init__(self, changes):
        self._changes, self._is_asking = changes, False
        sys.meta_path.insert(0, self)
        for name in changes.keys() & sys.modules.keys():
            changes[name](sys.modules[name])

    def find_spec(self, name, path=None, target=None):
        if name not in self._changes or self._is_asking:
            return None
        self._is_asking = True  # the others, in which this one has no part
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_asking = False
        if spec is None or spec.loader is None:
            return None
        plain = spec.loader.exec_module

        def exec_module(module):
            plain(module)
            self._changes[name](module)

        spec.loader.exec_module = exec_module
        return spec


class Program:
    """The program that `octavo run` runs. config: the path of an octavo.toml, or None: the launcher's variables, else the
    defaults. fp8_state: as in OctavoCallback."""

    def __init__(self, config=None, fp8_state="saved"):
        if config is not None:
            session_run.check(config)
        if fp8_state not in ("saved", "anew"):
            raise InvalidError(f"octavo run: expected --fp8-state saved or anew, found {fp8_state!r}; choose one")
        self._config, self._fp8_state = config, fp8_state
        self.asked = False  # whether anything of the program asked for FP8

    def change(self):
        """The list of docs/run.md."""
        if os.environ.get(_VARIABLE, "no").lower() != "fp16":
            os.environ[_VARIABLE] = "fp8"
        # A program with a line of Octavo imports the adapter first, which then imports accelerate.
        adapter = f"{__package__}.accelerate"
        _Afterwards({"accelerate": lambda module: importlib.import_module(adapter), adapter: self._accelerate,
                     "transformers.trainer": self._trainer})

    def _accelerate(self, adapter):
        module, program = sys.modules["accelerate"], self

        class Accelerator(adapter.Accelerator):
            __doc__ = adapter.Accelerator.__doc__
            octavo_config_of_program, octavo_state_of_program = program._config, program._fp8_state

            def prepare(self, *args, **kwargs):
                program.asked |= self._octavo is not None
                return super().prepare(*args, **kwargs)

        Accelerator.__qualname__, Accelerator.__module__ = "Accelerator", adapter.__name__
        module.Accelerator = module.accelerator.Accelerator = Accelerator
        module.utils.dataclasses.is_transformer_engine_available = lambda: True  # TERecipeKwargs asks for it

    def _trainer(self, module):
        plain, program = module.Trainer.__init__, self
        signature = inspect.signature(plain)

        @functools.wraps(plain)
        def init(self, *args, **kwargs):
            from .transformers import OctavoCallback
            given = signature.bind(self, *args, **kwargs)
            callbacks = list(given.arguments.get("callbacks") or ())
            if not any(c is OctavoCallback or isinstance(c, OctavoCallback) for c in callbacks):
                callbacks.insert(0, OctavoCallback(**launched.settings(program._config),
                                                   fp8_state=program._fp8_state))
            given.arguments["callbacks"] = callbacks
            program.asked = True
            plain(*given.args, **given.kwargs)

        module.Trainer.__init__ = init

    def run(self, is_module, name, arguments):
        """Runs a script or a module as Python does."""
        sys.argv = [name, *arguments]
        self.change()
        _say(f"FP8 of accelerate.Accelerator and of transformers.Trainer in {name} is Octavo's, configured by "
             f"{self._config or 'the script, the launcher or the defaults'}")
        try:
            if is_module:
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            else:
                if not sys.flags.safe_path:
                    sys.path[0] = os.path.dirname(os.path.realpath(name))
                runpy.run_path(name, run_name="__main__")
        except SystemExit as e:
            if not e.code:
                self._ended(name)
            raise
        self._ended(name)

    def _ended(self, name):
        if not self.asked:
            _say(f"nothing in {name} trained in FP8: expected accelerator.prepare of an "
                 'Accelerator(mixed_precision="fp8"), or a transformers Trainer, in this process, found neither')


def _say(text):
    """One line on stderr, from one rank of a machine."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"octavo run: {text}", file=sys.stderr, flush=True)


def _parsed(words):
    """(the options of Program, whether it is a module, its name, its arguments)."""
    words, options = list(words), {}
    while words and words[0].startswith("-") and words[0] != "-m":
        name, has_value, value = words.pop(0).partition("=")
        if name in ("-h", "--help"):
            print(USAGE)
            sys.exit(0)
        if name not in ("--config", "--fp8-state") or not (has_value or words):
            raise InvalidError(f"octavo run: expected --config FILE, --fp8-state CHOICE or -m MODULE before the program, "
                               f"found {name!r}{' without a value' if name in ('--config', '--fp8-state') else ''}; "
                               "octavo run --help has the usage")
        value = value if has_value else words.pop(0)
        options[name.strip("-").replace("-", "_")] = os.path.abspath(value) if name == "--config" else value
    is_module = words[:1] == ["-m"]
    if len(words) <= is_module:
        raise InvalidError("octavo run: expected a script, or -m and a module, found none; octavo run --help has the "
                           "usage")
    name = words[is_module]
    if is_module and importlib.util.find_spec(name) is None:
        raise InvalidError(f"octavo run -m {name}: expected a module that Python finds, found none; install it, or run "
                           "octavo in the folder that has it")
    if not is_module and not os.path.exists(name):
        raise InvalidError(f"octavo run {name}: expected a script, found no such file; correct the path")
    return options, is_module, name, words[is_module + 1:]


def main(words=None):
    """Runs the program. Exit code 2: the arguments or the configuration are wrong."""
    try:
        options, *program = _parsed(sys.argv[1:] if words is None else words)
        made = Program(**options)
    except OctavoError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    return made.run(*program)


if __name__ == "__main__":
    sys.exit(main())
