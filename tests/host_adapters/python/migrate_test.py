"""docs/migrate: each sample trains as its page says, and the tables name every key of the other side."""
import ast
import csv
import dataclasses
import importlib.util
import pathlib
import re
import sys

import octavo
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "samples" / "python"))
import tiny_gpt  # noqa: E402

NAMES = {"te": "transformer_engine", "msamp": "msamp", "torchao": "torchao", "accelerate": "accelerate"}


def sample(name):
    path = ROOT / "samples" / "python" / "migrate" / f"from_{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name):
    return (ROOT / "docs" / "migrate" / f"{name}.md").read_text(encoding="utf-8")


def first_cells(text):
    """Every name in `code` in the first column of the tables, without what follows = or [."""
    cells = re.findall(r"^\| (.*?) \|", text, re.M)
    return {re.split(r"[=\[(:]", name)[0].split(".")[-1].strip() for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_trains_in_fp8(name):
    model, losses = sample(name).main(steps=8)
    # [counted]
    report = octavo.report(model)
    report.assert_fp8(min_layers=8)
    assert not report.to_dict()["never_ran"], report
    # [/counted]
    assert len(report.fp8) == (8 if name == "torchao" else 9)
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("name", NAMES.values())
def test_the_page_names_keys_that_exist(name):
    """tests/docs/config_keys.py compares the rows of config.md with the programs."""
    known = set(re.findall(r"^\| `([a-z0-9_.]+)` \|", (ROOT / "docs" / "config.md").read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"`((?:fp8|layers)\.[a-z0-9_.]+)", page(name)))
    assert named and named <= known, named - known


def te_names(weights):
    """A state_dict of tiny_gpt.Gpt with the names of TE's LayerNormMLP and Linear, and their bytes."""
    saved = {}
    for name, value in weights.items():
        for te_name, place in sample("te").PLACES.items():
            if name.endswith(f".{place}"):
                name = f"{name.removesuffix(place)}mlp.{te_name}"
        saved[name] = value
        saved[f"{name.rpartition('.')[0]}._extra_state"] = torch.zeros(16, dtype=torch.uint8)
    return saved


def test_a_state_dict_with_the_names_of_te_loads():
    weights = tiny_gpt.Gpt(seed=3).state_dict()
    saved = te_names(weights)
    assert "blocks.0.mlp.fc1_weight" in saved and "blocks.1.mlp.layer_norm_bias" in saved
    loaded = sample("te").weights_of(saved)
    assert loaded.keys() == weights.keys() and all(torch.equal(loaded[name], weights[name]) for name in weights)
    first = sample("te").main(1, saved)[1]
    assert first != sample("te").main(1)[1]


def test_plain_values_load_before_and_after_prepare():
    weights = tiny_gpt.Gpt(seed=3).state_dict()
    losses = []
    for late in (False, True):
        model = tiny_gpt.Gpt()
        if not late:
            model.load_state_dict(weights)
        octavo.prepare(model, torch.optim.AdamW(model.parameters()), sample("msamp").CONFIG)
        if late:
            model.load_state_dict(weights)
        losses.append(model(next(tiny_gpt.batches(1))).item())
    assert losses[0] == losses[1]


def test_torchao_ends_at_the_same_loss():
    pytest.importorskip("torchao.float8", reason="torchao is not installed (the group oracles has it)")
    steps, losses = 20, []
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    model = tiny_gpt.Gpt()
    config = Float8LinearConfig(emulate=True)
    convert_to_float8_training(model, config=config, module_filter_fn=lambda module, name: name != "head")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for tokens in tiny_gpt.batches(steps):
        optimizer.zero_grad()
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    ours = sample("torchao").main(steps)[1]
    assert ours == pytest.approx(losses, rel=1e-3) and ours != losses


def test_the_table_of_torchao_is_complete():
    config = pytest.importorskip("torchao.float8.config", reason="torchao is not installed (the group oracles has it)")
    names = {field.name for field in dataclasses.fields(config.Float8LinearConfig)}
    recipes = {f'"{recipe.value}"' for recipe in config.Float8LinearRecipeName}
    assert len(names) > 10 and names <= first_cells(page("torchao")), names - first_cells(page("torchao"))
    assert recipes <= set(re.findall(r'"\w+"', page("torchao")))


def test_the_table_of_te_is_complete():
    path = pathlib.Path(sys.prefix, "apart/transformer_engine/common/recipe/__init__.py")
    if not path.exists():
        pytest.skip("Transformer Engine's recipe classes are not installed (the group oracles has them)")
    recipes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
               and any(getattr(base, "id", "") == "Recipe" for base in node.bases)]
    names = {recipe.name for recipe in recipes} | {
        field.target.id for recipe in recipes for field in recipe.body if isinstance(field, ast.AnnAssign)}
    found = first_cells(page("transformer_engine"))
    assert len(recipes) > 4 and len(names) > 20 and names <= found, names - found


def test_the_tables_of_accelerate_are_complete():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    with open(ROOT / "docs" / "import_keys.csv", encoding="utf-8", newline="") as file:
        imported = "\n".join(f"| {row[0]} |" for row in csv.reader(file))
    found = first_cells(page("accelerate")) | first_cells(imported)
    for handler in ("TERecipeKwargs", "MSAMPRecipeKwargs", "AORecipeKwargs"):
        names = {field.name for field in dataclasses.fields(getattr(accelerate.utils, handler))}
        assert names and names <= found, names - found
