"""octavo.accelerate.Accelerator: a script of Accelerate with mixed_precision="fp8", whose import is changed."""
import json
import os
import pathlib
import subprocess
import sys
import tomllib

import pytest
import torch

import octavo
from conftest import kind, session, te
from octavo import launched

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
from octavo.accelerate import Accelerator  # noqa: E402  needs accelerate

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "samples" / "python"))
import tiny_gpt  # noqa: E402

# What `accelerate launch --mixed_precision fp8 --fp8_backend te` of Accelerate 1.15 exports without further options.
LAUNCHED = {"ACCELERATE_MIXED_PRECISION": "fp8", "ACCELERATE_FP8_BACKEND": "te",
            "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL": "False", "ACCELERATE_FP8_MARGIN": "0",
            "ACCELERATE_FP8_INTERVAL": "1", "ACCELERATE_FP8_FORMAT": "HYBRID",
            "ACCELERATE_FP8_AMAX_HISTORY_LEN": "1024", "ACCELERATE_FP8_AMAX_COMPUTE_ALGO": "most_recent",
            "ACCELERATE_FP8_OVERRIDE_FPROP": "False", "ACCELERATE_FP8_OVERRIDE_DGRAD": "False",
            "ACCELERATE_FP8_OVERRIDE_WGRAD": "False", "ACCELERATE_FP8_OPT_LEVEL": "O2",
            "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER": "1", "ACCELERATE_FP8_PAD_INNER_DIM": "1"}


@pytest.fixture(autouse=True)
def one_accelerator(monkeypatch):
    """Accelerate keeps its settings for the process: each test begins without."""
    for name in [name for name in os.environ if name in LAUNCHED or name.startswith(launched.PREFIX)]:
        monkeypatch.delenv(name)
    yield
    reset()


def reset():
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def made():
    model = tiny_gpt.Gpt()
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def train(a, model, optimizer, steps=4):
    losses = []
    for tokens in tiny_gpt.batches(steps):
        loss = model(tokens)
        a.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def accelerator(**settings):
    return Accelerator(**{"mixed_precision": "fp8", "cpu": kind() == "cpu", **settings})


def launch(monkeypatch, **changed):
    for name, value in {**LAUNCHED, **{launched.PREFIX + k: v for k, v in changed.items()}}.items():
        monkeypatch.setenv(name, value)


def options(model):
    run = session(model).run
    return run.backend, run.options()


def test_fp8_is_that_of_octavo_accelerate_prepare():
    a = accelerate.Accelerator(mixed_precision="bf16", cpu=kind() == "cpu")
    expected = train(a, *octavo.accelerate.prepare(a, *made()))
    reset()
    a = accelerator()
    model, optimizer = made()
    its_optimizer, its_model = a.prepare(optimizer, model)  # in any order
    assert train(a, its_model, its_optimizer) == expected
    assert a.mixed_precision == "bf16"


@pytest.mark.parametrize("mixed_precision", ["no", "bf16"])
def test_any_other_precision_is_that_of_accelerate(mixed_precision):
    found = []
    for kind_of in (accelerate.Accelerator, Accelerator):
        reset()
        a = kind_of(mixed_precision=mixed_precision, cpu=kind() == "cpu")
        found.append(train(a, *a.prepare(*made())))
    assert found[0] == found[1]


def test_a_file_chooses(tmp_path):
    (tmp_path / "octavo.toml").write_text('[fp8]\nbackend = "msamp"\n[fp8.msamp]\nopt_level = "O1"\n')
    a = accelerator(octavo_config=tmp_path / "octavo.toml")
    model, _ = a.prepare(*made())
    backend, found = options(model)
    assert backend == "msamp" and "O1" in str(found)


def test_what_the_launcher_exports_arrives(monkeypatch):
    launch(monkeypatch, MARGIN="2", AMAX_HISTORY_LEN="16", FORMAT="E4M3", OVERRIDE_WGRAD="True")
    a = Accelerator(cpu=kind() == "cpu")
    model, optimizer = a.prepare(*made())
    backend, found = options(model)
    assert backend == "te"
    expected = octavo.prepare(*made(), overrides=te(
        "delayed", margin=2, amax_history_len=16, fp8_format="E4M3", amax_compute_algo="most_recent",
        override_linear_precision="wgrad", use_autocast_during_eval=False))[0]
    assert found == options(expected)[1]
    train(a, model, optimizer, 2)


@pytest.mark.parametrize("changed, backend, key", [
    ({"BACKEND": "msamp", "OPT_LEVEL": "O1"}, "msamp", ("opt_level", "O1")),
    ({"BACKEND": "AO"}, "te", ("recipe", "current")),
    ({"USE_MXFP8_BLOCK_SCALING": "true"}, "te", ("recipe", "mx"))])
def test_backends_of_the_launcher(monkeypatch, changed, backend, key):
    launch(monkeypatch, **changed)
    model, _ = Accelerator(cpu=kind() == "cpu").prepare(*made())
    name, found = options(model)
    assert name == backend and key[0] in str(found) and key[1] in str(found)


@pytest.mark.parametrize("handler, values", [
    ("TERecipeKwargs", {"fp8_format": "E4M3", "margin": 1, "interval": 1, "amax_history_len": 32,
                        "amax_compute_algo": "max", "override_linear_precision": (True, False, True),
                        "use_autocast_during_eval": True}),
    ("TERecipeKwargs", {"margin": 3}),
    ("MSAMPRecipeKwargs", {"opt_level": "O1"})])
def test_recipe_objects_mean_what_octavo_import_makes_of_them(handler, values, tmp_path):
    program = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"]).parent / "bin" / "octavo"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    texts = [f"{k}={','.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in values.items()]
    done = subprocess.run([program, "init", "--kwargs", handler, *texts, "--output", tmp_path / "octavo.toml"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tables = tomllib.loads((tmp_path / "octavo.toml").read_text())
    table = tables["fp8"]
    imported = {"fp8.backend": table["backend"], "layers.skip": tables["layers"]["skip"],
                **{f"fp8.{table['backend']}.{k}": v for k, v in table.get(table["backend"], {}).items()}}
    recipe = type(handler, (accelerate.utils.KwargsHandler,), {})()
    recipe.__dict__.update(values)
    assert launched.overrides(launched.settings_of(recipe)) == imported
    a = accelerator(kwargs_handlers=[recipe])
    assert options(a.prepare(*made())[0])[0] == table["backend"]


@pytest.mark.parametrize("changed", [
    {}, {"MARGIN": "3", "FORMAT": "E4M3", "AMAX_HISTORY_LEN": "32", "AMAX_COMPUTE_ALGO": "MAX"},
    {"OVERRIDE_FPROP": "true", "OVERRIDE_WGRAD": "1", "USE_AUTOCAST_DURING_EVAL": "yes"},
    {"USE_MXFP8_BLOCK_SCALING": "true"}, {"BACKEND": "MSAMP"}, {"BACKEND": "msamp", "OPT_LEVEL": "O1"}, {"BACKEND": "AO"}])
def test_the_program_shows_what_arrives(monkeypatch, changed):
    """octavo config show --launcher has the values of launched.overrides, with the variables they are from."""
    program = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"]).parent / "bin" / "octavo"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    launch(monkeypatch, **changed)
    done = subprocess.run([program, "config", "show", "--launcher", "--json"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    shown = {key: s for key, s in json.loads(done.stdout)["settings"].items() if s["origin"] != "default"}
    assert shown.pop("mixed_precision") == {"value": "fp8", "origin": "ACCELERATE_MIXED_PRECISION"}
    mx = {"fp8.te.margin": 0, "fp8.te.interval": 1} if "USE_MXFP8_BLOCK_SCALING" in changed else {}  # has no others
    assert {key: s["value"] for key, s in shown.items()} == {**launched.overrides(os.environ), **mx}
    for key, s in shown.items():
        last = key.split(".")[-1].upper().removeprefix("FP8_")
        expected = {"RECIPE": "octavo.accelerate", "SKIP": "octavo.accelerate", "OVERRIDE_LINEAR_PRECISION": ", ".join(
            f"ACCELERATE_FP8_OVERRIDE_{p}" for p in ("FPROP", "DGRAD", "WGRAD"))}
        if changed.get("USE_MXFP8_BLOCK_SCALING"):
            expected["RECIPE"] = "ACCELERATE_FP8_USE_MXFP8_BLOCK_SCALING"
        assert s["origin"] == expected.get(last, f"ACCELERATE_FP8_{last}"), key


def test_save_state_has_the_fp8_state(tmp_path):
    a = accelerator()
    model, optimizer = a.prepare(*made())
    train(a, model, optimizer)
    a.save_state(str(tmp_path))
    expected = train(a, model, optimizer)
    reset()
    a = accelerator()
    model, optimizer = a.prepare(*made())
    a.load_state(str(tmp_path))
    assert train(a, model, optimizer) == expected


def test_prepare_model_converts_for_training_alone():
    a = accelerator()
    assert octavo.torch.session_of(a.prepare_model(tiny_gpt.Gpt())) is not None
    with pytest.raises(octavo.StateError):
        octavo.torch.session_of(a.prepare_model(tiny_gpt.Gpt(), evaluation_mode=True))


@pytest.mark.parametrize("changed, error, message", [
    ({"MARGIN": "1.5"}, octavo.InvalidError, "ACCELERATE_FP8_MARGIN: expected a whole number, found '1.5'"),
    ({"OVERRIDE_DGRAD": "maybe"}, octavo.InvalidError, "ACCELERATE_FP8_OVERRIDE_DGRAD: expected true or false"),
    ({"BACKEND": "deepspeed"}, octavo.InvalidError, "ACCELERATE_FP8_BACKEND: expected te, msamp or ao"),
    ({"INTERVAL": "4"}, octavo.UnsupportedError, "ACCELERATE_FP8_INTERVAL: expected 1, found 4")])
def test_variables_that_mean_nothing(monkeypatch, changed, error, message):
    launch(monkeypatch, **changed)
    with pytest.raises(error, match=message):
        Accelerator(cpu=kind() == "cpu")


def test_settings_that_contradict_each_other():
    with pytest.raises(octavo.InvalidError, match='octavo_shard_optimizer_state and octavo_fp8_state are used with mixed_precision="fp8", found .bf16'):
        accelerator(mixed_precision="bf16", octavo_config="octavo.toml")
    recipe = type("MSAMPRecipeKwargs", (accelerate.utils.KwargsHandler,), {})()
    recipe.opt_level = "O1"
    with pytest.raises(octavo.InvalidError, match="expected one of octavo_config and a recipe"):
        accelerator(octavo_config="octavo.toml", kwargs_handlers=[recipe])
    recipe = type("AORecipeKwargs", (accelerate.utils.KwargsHandler,), {})()
    recipe.module_filter_func = print
    with pytest.raises(octavo.UnsupportedError, match="layers.skip"):
        accelerator(kwargs_handlers=[recipe])


BACKENDS = {"te": "delayed", "msamp": "O2"}


def of_backend(name, tmp_path):
    key = {"te": "recipe", "msamp": "opt_level"}[name]
    path = tmp_path / "octavo.toml"
    path.write_text(f'[fp8]\nbackend = "{name}"\n[fp8.{name}]\n{key} = "{BACKENDS[name]}"\n')
    return accelerator(octavo_config=path)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("calls", ["model, optimizer", "model; optimizer", "prepare_model; optimizer",
                                   "model; prepare_optimizer", "optimizer made later"])
def test_in_several_calls_it_trains_as_in_one(calls, backend, tmp_path):
    a = of_backend(backend, tmp_path)
    expected = train(a, *a.prepare(*made()))
    reset()
    a = of_backend(backend, tmp_path)
    model, optimizer = made()
    if calls == "model, optimizer":
        optimizer, model = a.prepare(optimizer, model)
    else:
        model = a.prepare_model(model) if calls.startswith("prepare_model") else a.prepare(model)
        if calls == "optimizer made later":
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        optimizer = a.prepare_optimizer(optimizer) if "prepare_optimizer" in calls else a.prepare(optimizer)
    assert train(a, model, optimizer) == expected
    assert (type(optimizer.optimizer) is octavo.torch.Adam) == (backend == "msamp")


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 48), torch.nn.Linear(48, 32)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def rounds(a, forward, optimizer, steps=6):
    """Losses of a regression."""
    found = []
    for i in range(steps):
        x = torch.randn(64, 32, generator=torch.Generator(kind()).manual_seed(i))
        with a.autocast():
            loss = (forward(x).float() - x.roll(1, 1)).square().mean()
        a.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_one_optimizer_over_two_models(tmp_path):
    """As over one model that has both as parts."""
    torch.manual_seed(1)
    a, whole = of_backend("te", tmp_path), Pair()
    whole, optimizer = a.prepare(whole, torch.optim.AdamW(whole.parameters(), lr=1e-2))
    expected = rounds(a, whole, optimizer)
    reset()
    torch.manual_seed(1)
    a, parts = of_backend("te", tmp_path), Pair()
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-2)
    first, second, optimizer = a.prepare(parts.first, parts.second, optimizer)
    assert rounds(a, lambda x: second(torch.relu(first(x))), optimizer) == expected
    assert expected[-1] < expected[0]


def test_one_optimizer_over_two_models_that_msamp_cannot_step(tmp_path):
    a, parts = of_backend("msamp", tmp_path), Pair()
    before = [p.clone() for p in parts.parameters()]
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-2)
    with pytest.raises(octavo.UnsupportedError, match="one over several models.*make one optimizer for each model"):
        a.prepare(parts.first, parts.second, optimizer)
    assert type(parts.first) is torch.nn.Linear and not hasattr(parts.first, "octavo_session")
    assert all(torch.equal(p, b) for p, b in zip(parts.parameters(), before))


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_models_with_an_optimizer_each(backend, tmp_path):
    a, parts = of_backend(backend, tmp_path), Pair()
    made_each = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (parts.first, parts.second)]
    second, its, first, other = a.prepare(parts.second, made_each[1], parts.first, made_each[0])
    before = [p.detach().clone() for p in (*first.parameters(), *second.parameters())]

    class Both:
        def step(self):
            its.step(), other.step()

        def zero_grad(self):
            its.zero_grad(), other.zero_grad()

    rounds(a, lambda x: second(torch.relu(first(x))), Both())
    moved = [not torch.equal(p, b) for p, b in zip((*first.parameters(), *second.parameters()), before)]
    assert all(moved) and session(first) is not session(second)
    a.save_state(str(tmp_path / "saved"))
    expected = rounds(a, lambda x: second(torch.relu(first(x))), Both())
    a.load_state(str(tmp_path / "saved"))
    assert rounds(a, lambda x: second(torch.relu(first(x))), Both()) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_optimizers_of_one_model(backend, tmp_path):
    a, model = of_backend(backend, tmp_path), Pair()
    model, one, two = a.prepare(model, *(torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model.first, model.second)))
    before = [p.detach().clone() for p in model.parameters()]

    class Both:
        def step(self):
            one.step(), two.step()

        def zero_grad(self):
            one.zero_grad(), two.zero_grad()

    losses = rounds(a, model, Both())
    assert losses[-1] < losses[0]
    assert all(not torch.equal(p, b) for p, b in zip(model.parameters(), before))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("together", [True, False])
def test_a_frozen_teacher_stays_as_accelerate_runs_it(backend, together, tmp_path):
    torch.manual_seed(2)
    teacher = Pair().requires_grad_(False).eval()
    x = torch.randn(64, 32)
    a = accelerate.Accelerator(mixed_precision="bf16", cpu=kind() == "cpu")
    expected = a.prepare_model(teacher)(x)
    reset()
    torch.manual_seed(2)
    teacher, student = Pair().requires_grad_(False).eval(), Pair()
    a = of_backend(backend, tmp_path)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
    if together:
        student, teacher, optimizer = a.prepare(student, teacher, optimizer)
    else:
        teacher = a.prepare(teacher)
        student, optimizer = a.prepare(student, optimizer)
    assert torch.equal(teacher(x), expected)
    assert type(a.unwrap_model(teacher).first) is torch.nn.Linear
    losses = rounds(a, lambda x: student(x) - teacher(x), optimizer)
    assert losses[-1] < losses[0] and len(session(student).sites) == 2


def test_every_other_name_is_that_of_accelerate():
    import accelerate

    import octavo.accelerate
    assert octavo.accelerate.DistributedType is accelerate.DistributedType
    assert octavo.accelerate.Accelerator is not accelerate.Accelerator
    for name in ("Nothing", "__path__"):
        assert not hasattr(octavo.accelerate, name)
