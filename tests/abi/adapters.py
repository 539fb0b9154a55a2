"""An adapter that was built with the headers of next_headers.py, over today's liboctavo and with released plugins: it
trains, with the bits of today's adapter.

  adapters.py torch_ops|torch|jax <folder of today's libraries> <the adapter's library> <golden folder of a snapshot>
              [a program on octavo::torch]

A process has one adapter, so each training is a process of its own. What it prints is compared.
"""
import hashlib
import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

import combinations

# Released plugin -> its recipes. te has pools, octavo.fused/1 and codes in `saved`; minimal needs x.
PLUGINS = {"cpp/te.so": ["delayed", "block"], "gcc/minimal.so": [None]}


def overrides(backend, recipe):
    folder = os.environ["GOLDEN_PLUGIN"]
    return {"mixed_precision": "fp8", "layers.min_gain": "off", "layers.skip": [], "fp8.backend": backend,
            "plugins.path": folder, "plugins.trust": "dev", "plugins.probe": "never",
            **({"fp8.te.recipe": recipe} if recipe else {})}


def train_torch_ops(settings):
    import octavo
    import torch
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer = octavo.prepare(model, optimizer, overrides=settings)
    x = torch.randn(16, 32)
    for _ in range(3):
        optimizer.zero_grad()
        ((model(x) - x)**2).mean().backward()
        optimizer.step()
    octavo.report(model).assert_fp8(min_layers=2)
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def train_jax(settings):
    import jax
    import jax.numpy as jnp
    import octavo.jax as oj
    sizes = {"up": (64, 32), "down": (32, 64)}
    p = {name: jax.random.normal(jax.random.key(i), shape) / 8 for i, (name, shape) in enumerate(sizes.items())}
    x = jax.random.normal(jax.random.key(7), (16, 32))

    def loss(p, x):
        return jnp.mean((oj.linear("down", jax.nn.relu(oj.linear("up", x, p["up"])), p["down"]) - x)**2)

    state = oj.init(p, overrides=settings)

    @jax.jit
    def step(state, p):
        _, gradients, state = oj.value_and_grad(loss)(state, p, x)
        return jax.tree.map(lambda w, g: w - 0.1 * g, p, gradients), oj.end_step(state)
    for _ in range(3):
        p, state = step(state, p)
    import numpy
    return [numpy.asarray(value).tobytes() for value in p.values()]


def trained(adapter, program, libraries, golden, plugin, recipe, home):
    """The digest of the weights after three steps, in a process."""
    folder, backend = combinations.put(golden / plugin, home), pathlib.Path(plugin).stem
    words = [sys.executable, "-B", __file__, "--train", adapter, backend, recipe or ""]
    if program is not None:
        words = [program, str(folder), backend, recipe or ""]
        torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib"
        os.environ["LD_LIBRARY_PATH"] = f"{libraries}:{torch}"  # the program has no path of its own
    environment = {**os.environ, "OCTAVO_LIBRARY_DIR": str(libraries), "GOLDEN_PLUGIN": str(folder), "HOME": str(home)}
    result = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=280)
    if result.returncode != 0:
        sys.exit(f"{adapter}, {plugin} {recipe or ''}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def main(adapter, today, library, golden, program=None):
    if platform.machine() != "x86_64":
        print("SKIPPED: these binaries of snapshots are for x86_64, this is", platform.machine())
        return 77
    today, library, wrong = pathlib.Path(today), pathlib.Path(library), 0
    with tempfile.TemporaryDirectory() as name:
        later = pathlib.Path(name, "lib")
        later.mkdir()
        for file in today.glob("liboctavo*.so*"):
            shutil.copy(file, later)
        os.chmod(shutil.copy(library, later / library.name), 0o755)
        for plugin, recipes in PLUGINS.items():
            for recipe in recipes:
                found = []
                for libraries in (today, later):
                    home = pathlib.Path(name, f"{pathlib.Path(plugin).stem}-{recipe}-{libraries.name}-{len(found)}")
                    home.mkdir()
                    found.append(trained(adapter, program, libraries, pathlib.Path(golden), plugin, recipe, home))
                wrong += found[0] != found[1]
                print(f"{adapter}, {plugin} {recipe or ''}: today's {found[0].strip()}, the next minor's {found[1].strip()}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--train":
        settings = overrides(sys.argv[3], sys.argv[4])
        trains = {"torch_ops": train_torch_ops, "jax": train_jax}
        print(hashlib.sha256(b"".join(trains[sys.argv[2]](settings))).hexdigest()[:16])
        sys.exit(0)
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
