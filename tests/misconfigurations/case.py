"""One misconfiguration: how it comes about, and what `octavo check` must say first."""
import dataclasses
import hashlib
import pathlib
import platform
import re
import shutil
from typing import Callable, Optional

TUPLE = "linux-x86_64" if platform.machine() == "x86_64" else "linux-aarch64"


@dataclasses.dataclass
class Case:
    name: str
    reason: str                                   # of the first refusal
    stage: str = "config"                         # where it was refused
    config: Optional[str | bytes] = ""            # octavo.toml; None: no such argument
    config_name: str = "octavo.toml"
    environment: dict = dataclasses.field(default_factory=dict)
    overrides: dict = dataclasses.field(default_factory=dict)
    setup: Optional[Callable] = None              # (place) -> None
    then: tuple = ()                              # reasons that may follow, in this order
    runs: str = "fp8"                             # what runs in the end
    gpu: Optional[str] = None                     # OCTAVO_FAKE_GPU; "" for no driver
    keeps: str = ""                               # what the user stated, in the remedy
    asks: str = ""                                # the key that the user has to decide about; no edit is offered


class Place:
    """The directory of one case, with the zoo at hand."""

    def __init__(self, directory, zoo):
        self.directory = pathlib.Path(directory)
        self.plugins = self.directory / "plugins"
        self.zoo = pathlib.Path(zoo)

    def write(self, name, content, mode=0o644):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    def manifest(self, name="fake", version=1, library=None, sha256=None, major=1):
        file = library or f"{name}.so"
        entry = f'{{ file = "{file}", sha256 = "{sha256}" }}' if sha256 else f'"{file}"'
        self.write(f"plugins/{name}.octavo-plugin.toml",
                   f'manifest_version = {version}\n[plugin]\nname = "{name}"\nversion = "1.2.3"\n'
                   f'[abi]\nmajor = {major}\nminor = 0\n[library]\n{TUPLE} = {entry}\n')

    def library(self, fault="good", name="fake", keep=None):
        """The zoo's plugin with this fault, or the first `keep` bytes of it."""
        self.plugins.mkdir(exist_ok=True)
        path = self.plugins / f"{name}.so"
        shutil.copyfile(self.zoo / f"fake_{fault}.so", path)
        path.chmod(0o755)
        if keep is not None:
            path.write_bytes(path.read_bytes()[:keep])
        return path


def fake(fault):
    """Sets up the zoo's plugin `fake` with one fault."""
    def setup(place):
        place.library(fault)
        place.manifest()
    return setup


def cuda_kernels(place):
    """The manifest of the plugin kernels-cuda, with what it requires of the machine, and no code."""
    template = pathlib.Path(__file__).parents[2] / "kernels/cuda/kernels-cuda.octavo-plugin.toml.in"
    values = {"ID": "kernels-cuda", "VERSION": "1.2.3", "DESCRIPTION": "kernels", "TUPLE": TUPLE}
    text = re.sub(r"@OCTAVO_PLUGIN_(\w+)@", lambda m: values[m[1]], template.read_text())
    place.write("plugins/kernels-cuda.octavo-plugin.toml", text)
    place.write("plugins/kernels-cuda.so", "no code")


def sha256_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
