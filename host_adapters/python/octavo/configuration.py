"""A configuration: a file, TOML text or a dict, a recipe, and overrides."""
from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any, Union

from . import _abi, files
from .errors import InvalidError
from .library import plugin_directories

Configuration = Union[str, "os.PathLike[str]", Mapping, "Config", None]


def path_of(path):
    """Also of names that are not UTF-8, as the system has them. Raises InvalidError for an object that cannot be a path."""
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise InvalidError(f"{path!a:.200}: expected the path of a file, found a text with a null character; give another one")
    return _abi.Str(data, len(data))


# The keys of options of a backend, which are never lists.
_OPTION = re.compile(r"(layers\.rule\.\d+\.)?fp8\.(?!require\.).+\.")


def _value(key, value):
    out = _abi.Value()
    if isinstance(value, (list, tuple)) and not _OPTION.match(key):
        value = _toml(value, f"overrides: {key}")
    if isinstance(value, bool):
        out.type, out.integer = _abi.VALUE_BOOL, int(value)
    elif isinstance(value, int):
        out.type, out.integer = _abi.VALUE_INT, value
    elif isinstance(value, float):
        out.type, out.real = _abi.VALUE_REAL, value
    elif isinstance(value, str):
        out.type, out.text = _abi.VALUE_TEXT, _abi.Str.of(value)
    else:
        raise InvalidError(f"overrides: {key}: expected a bool, int, float or str, found {type(value).__name__} {value!r}")
    return out


def _toml(value, where):
    """The TOML of a value of a configuration that is a dict."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(v, where) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(str(k), where)} = {_toml(v, where)}' for k, v in value.items())}}}"
    raise InvalidError(f"{where}: expected a bool, int, float, str, list or dict, found "
                       f"{type(value).__name__} {value!r}")


def _lines_of(table, above=()):
    """The lines `"fp8"."te"."recipe" = "block"` of a configuration that is a dict. The names on top may be dotted."""
    for name, value in table.items():
        if not isinstance(name, str):
            raise InvalidError(f"config: expected texts as keys, found {name!r}")
        path = (*above, *(name.split(".") if not above else [name]))
        if isinstance(value, dict):
            yield from _lines_of(value, path)
        else:
            where = "config: " + ".".join(path)
            yield f"{'.'.join(_toml(part, where) for part in path)} = {_toml(value, where)}"


def _overrides_of(recipe):
    """The overrides that a recipe stands for: "te.block", "msamp.O2", or a backend with its own default, "te"."""
    if not isinstance(recipe, str) or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", recipe):
        raise InvalidError(f'recipe: expected "<backend>.<recipe>", such as "te.block" or "msamp.O2", found {recipe!r}')
    backend, dot, choice = recipe.rpartition(".")
    if not dot:
        return {"fp8.backend": recipe}
    return {"fp8.backend": backend, f"fp8.{backend}.{'opt_level' if backend == 'msamp' else 'recipe'}": choice}


@dataclasses.dataclass(frozen=True)
class Config:
    """A file or TOML text to open, and overrides with precedence over it.

    Args:
        path: The path of an octavo.toml, or the name for `text` in messages.
        text: TOML, instead of the file.
        overrides: Pairs of a dotted key and a value, such as ("fp8.te.recipe", "block").

    Example:
        >>> octavo.prepare(model, optimizer, octavo.Config(text='fp8.backend = "te"'))
    """
    path: str = ""
    text: str = ""
    overrides: tuple = ()

    @staticmethod
    def of(config: Configuration, overrides: Mapping[str, Any] | None = None, recipe: str | None = None) -> Config:
        """Makes a Config.

        Args:
            config: A path, a dict with the tables of octavo.toml, a Config, or None for the defaults.
            overrides: Dotted keys and their values, which count before config.
            recipe: "te.block", "msamp.O2" and so on, which counts before config.

        Raises:
            InvalidError: For anything else.
        """
        if isinstance(config, Config):
            base = config
        elif config is None:
            base = Config()
        elif isinstance(config, Mapping):
            base = Config(path="(config)", text="\n".join(_lines_of(config)))
        elif isinstance(config, str) and "\n" in config:
            raise InvalidError(f"config: expected the path of an octavo.toml, found a text of {len(config.splitlines())} lines; "
                               "for TOML give octavo.Config(text=...)")
        elif isinstance(config, (str, os.PathLike)):
            base = Config(path=os.path.abspath(os.fspath(config)))
        else:
            raise InvalidError(f"config: expected the path of an octavo.toml, a dict, an octavo.Config or None, found "
                               f"{type(config).__name__}")
        if overrides is not None and not isinstance(overrides, Mapping):
            raise InvalidError('overrides: expected a dict of dotted keys, such as {"fp8.te.margin": 1}, found '
                               f"{type(overrides).__name__} {overrides!r:.200}")
        added = {**({} if recipe is None else _overrides_of(recipe)), **(overrides or {})}
        return dataclasses.replace(base, overrides=base.overrides + tuple(added.items()))

    def frozen(self):
        """This configuration with the current content of its file as text, for pickled models. Raises InvalidError
        where it cannot be read."""
        if not self.path or self.text:
            return self
        return dataclasses.replace(self, text=files.text_of(self.path))

    def desc(self, host_address, device):
        """Returns (octavo_open_desc, the objects it refers to). Keep the latter during the call."""
        pairs = [_abi.OptionValue(_abi.Str.of(k), _value(k, v)) for k, v in self.overrides]
        overrides = (_abi.OptionValue * len(pairs))(*pairs)
        folders = [path_of(d) for d in plugin_directories()]
        directories = (_abi.Str * len(folders))(*folders)
        desc = _abi.OpenDesc(size=ctypes.sizeof(_abi.OpenDesc), kind=_abi.KIND_OPEN_DESC,
                             overrides=overrides, override_count=len(pairs),
                             plugin_dirs=directories, plugin_dir_count=len(folders),
                             device=_abi.Device(*device), host=host_address)
        desc.config_path = path_of(self.path)
        if self.text:
            desc.config_text = _abi.Str.of(self.text)
        return desc, (overrides, directories)
