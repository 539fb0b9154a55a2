"""Plugins that are broken, one fault each, in folders of a test: the libraries of tests/zoo/faults.h."""
import os
import pathlib
import platform
import shutil
import warnings

import torch

import octavo

LIBRARIES = pathlib.Path(os.environ["OCTAVO_ZOO_DIR"])
PLATFORM = f"linux-{platform.machine()}"
MANIFEST = ('manifest_version = 1\n[plugin]\nname = "fake"\nversion = "1.2.3"\n[abi]\nmajor = 1\nminor = 0\n'
            f'[library]\n{PLATFORM} = "fake.so"\n')


def library(fault="good"):
    """The bytes of the library with this fault."""
    return (LIBRARIES / f"fake_{fault}.so").read_bytes()


def put(folder, content=None, manifest=MANIFEST):
    """Makes the folder of a plugin `fake`: content is the library's bytes, or None for no library."""
    folder.mkdir(parents=True, mode=0o755)
    if content is not None:
        (folder / "fake.so").write_bytes(content)
        (folder / "fake.so").chmod(0o755)
    if manifest is not None:
        (folder / "fake.octavo-plugin.toml").write_text(manifest)
    return folder


def throwing(folder):
    put(folder)
    shutil.copy(LIBRARIES / "octavo_throwing_plugin.so", folder / "fake.so")
    return folder


def settings(folder, **more):
    """Overrides that ask for the fake and for nothing else."""
    return {"fp8.backend": "fake", "plugins.trust": "dev", "plugins.path": str(folder), **more}


def said_of(folder, **more):
    """What octavo.prepare answers, as (the error or None, all that it says). A refused model is as it was,
    and still computes."""
    model = torch.nn.Linear(16, 16, bias=False)
    before, x = model.weight.detach().clone(), torch.ones(2, 16)
    expected = model(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            octavo.prepare(model, None, overrides=settings(folder, **more))
        except octavo.OctavoError as e:
            assert type(model) is torch.nn.Linear and torch.equal(model.weight, before)
            assert torch.equal(model(x), expected)
            return e, str(e)
    return None, "\n".join(str(w.message) for w in caught)


def refusal(folder, **more):
    """The text of octavo.UnsupportedError, which names the plugin and has a remedy."""
    found, text = said_of(folder, **more)
    assert type(found) is octavo.UnsupportedError, (found, text)
    assert "\nfake: " in f"\n{text}" and "\n    remedy: " in text and "fp8.fallback is empty" in text, text
    return text
