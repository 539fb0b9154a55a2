"""octavo.export: transformers loads the codes that training multiplied by, and nothing else changes."""
import json
import resource

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, CompressedTensorsConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM)
from transformers.utils import is_compressed_tensors_available

import octavo
from conftest import LEVELS, at_level
from export_parts import TINY, check_casts, check_linears, dense, plain_of, read, tokens, train, trained, values
from octavo.torch import session_of


def te(recipe, **more):
    return {"fp8.backend": "te", "fp8.te.recipe": recipe, "layers.skip": [], **{f"fp8.te.{key}": value for key, value in more.items()}}


def msamp(level):
    return {"fp8.backend": "msamp", "fp8.msamp.opt_level": level, "layers.skip": []}


# What each layout holds, and the granularity that its config names.
HOLDS = {"fp8": [("delayed", None, "static"), ("current", None, "dynamic"), ("block", [128, 128], "dynamic"),
                 ("mx", [1, 32], "dynamic"), ("O1", None, "static"), ("O2", None, "static"), ("O3", None, "static")],
         "compressed-tensors": [("delayed", "tensor", "tensor"), ("current", "tensor", "token"),
                                ("rowwise", "channel", "token"), ("block", "block", "group"),
                                ("O1", "tensor", "tensor"), ("O3", "tensor", "tensor")]}
REFUSED = [("fp8", "rowwise", "no scale of a whole row; use 'compressed-tensors'"),
           ("compressed-tensors", "mx", "found blocks of 32 with powers of two; use 'fp8'")]


def options_of(recipe):
    return msamp(recipe) if recipe.startswith("O") else te(recipe)


def load(folder, layout):
    """The model with its codes multiplied out: all that transformers does on a CPU with the layout "fp8"."""
    how = {"quantization_config": CompressedTensorsConfig(dequantize=True)} if layout != "fp8" else {}
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **how).eval()


def consumers(layout):
    """What reads a folder: the library of the layout, where it is here, and a reader of our own."""
    if layout == "compressed-tensors" and not is_compressed_tensors_available():
        return [read]
    return [read, lambda folder: load(folder, layout)]


def trained_weights(model):
    """{linear: the values that its master weight has}, as a plain checkpoint of the model holds them."""
    state = model.state_dict()
    return {name: state[f"{name}.weight"] for name in values(model)}


def loads(layout):
    if layout == "compressed-tensors" and not is_compressed_tensors_available():
        pytest.skip("the package compressed-tensors, group oracles of tests/environment, is missing")


@pytest.mark.parametrize("layout, recipe, weights, inputs",
                         [(layout, *row) for layout, rows in HOLDS.items() for row in rows])
def test_transformers_loads_what_training_multiplied_by(tmp_path, layout, recipe, weights, inputs):
    model, _ = trained(options_of(recipe))
    assert octavo.export(model, tmp_path, layout) == {"lm_head": "excluded by module_filter"}
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    if layout == "fp8":
        assert (config["weight_block_size"], config["activation_scheme"]) == (weights, inputs)
        assert config["modules_to_not_convert"] == ["lm_head"]
    else:
        group = config["config_groups"]["group_0"]
        assert (group["weights"]["strategy"], group["input_activations"]["strategy"]) == (weights, inputs)
        assert config["ignore"] == ["lm_head"]
    expected = values(model)
    assert len(expected) == 14
    check_casts(expected, trained_weights(model))
    ids = tokens(TINY, 2, 16, 9)
    for consumer in consumers(layout):
        loaded = consumer(tmp_path)
        for name, value in expected.items():
            assert torch.equal(loaded.get_submodule(name).weight, value), name
        with torch.no_grad():
            served = loaded(input_ids=ids).logits
            assert torch.equal(served, plain_of(model, expected)(input_ids=ids).logits)


@pytest.mark.parametrize("layout, recipe", [("fp8", "delayed"), ("compressed-tensors", "current"), ("fp8", "block"),
                                            ("fp8", "mx"), ("compressed-tensors", "rowwise"), ("fp8", "O2")])
def test_the_loaded_file_has_the_loss_of_the_trained_model(tmp_path, layout, recipe):
    """The untrained loss is ln(300); E4M3 weights change the trained one by some percent."""
    model, optimizer = trained(options_of(recipe), steps=0)
    ids = tokens(TINY, 2, 16, 3)
    for _ in range(40):
        train(model, optimizer, ids)
    octavo.export(model, tmp_path, layout)
    with torch.no_grad():
        expected = plain_of(model, trained_weights(model))(input_ids=ids, labels=ids).loss.item()
        found = [consumer(tmp_path)(input_ids=ids, labels=ids).loss.item() for consumer in consumers(layout)]
    assert expected < 3 and found == pytest.approx([expected] * len(found), rel=0.05)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("recipe", ["delayed", "current", "block", "mx", "rowwise", "O1", "O2", "O3"])
def test_every_reader_decodes_the_slots_of_every_level(tmp_path, monkeypatch, recipe, level):
    """Widths that are no multiple of a panel, a block or a vector."""
    at_level(monkeypatch, level)
    model = torch.nn.Sequential(torch.nn.Linear(72, 40), torch.nn.Linear(40, 96), torch.nn.Linear(96, 200))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer = octavo.prepare(model, optimizer, overrides=options_of(recipe))
    for _ in range(2):  # delayed scales are of the step before
        model(torch.randn(8, 72)).square().mean().backward()
        optimizer.step()
    expected = values(model)
    check_casts(expected, trained_weights(model))
    with octavo.debug.dump(model, tmp_path / "step.safetensors"):
        model(torch.randn(8, 72)).sum().backward()
    blocks = {"block": (128, 128), "mx": (1, 32)}
    found = load_file(tmp_path / "step.safetensors")
    check_casts({name: dense(found[f"{name}/weight_codes"], found[f"{name}/weight_scale_inv"], blocks.get(recipe))
                 for name in expected}, trained_weights(model))
    if recipe != "mx":  # the layout "fp8" has whole blocks alone
        octavo.export(model, tmp_path, "compressed-tensors")
        found = load_file(tmp_path / "model.safetensors")
        check_casts({name: dense(found[f"{name}.weight"], found[f"{name}.weight_scale"], blocks.get(recipe))
                     for name in expected}, trained_weights(model))


@pytest.mark.parametrize("recipe", ["delayed", "current", "O2"])
def test_a_model_that_was_saved_at_another_level_has_its_codes_there(tmp_path, monkeypatch, recipe):
    at_level(monkeypatch, LEVELS[0])
    model = torch.nn.Sequential(torch.nn.Linear(72, 40))
    octavo.prepare(model, overrides=options_of(recipe))
    x = torch.randn(8, 72)
    y = model(x)
    torch.save(model, tmp_path / "model.pt")
    at_level(monkeypatch, "baseline")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(loaded(x), y)
    assert all(torch.equal(value, values(loaded)[name]) for name, value in values(model).items())


@pytest.mark.parametrize("recipe", ["delayed", "block", "O3"])
def test_the_file_has_the_codes_and_scales_of_the_slots(tmp_path, recipe):
    model, _ = trained(options_of(recipe))
    octavo.export(model, tmp_path)
    session, name = session_of(model), "model.layers.1.mlp.up_proj"
    slots = {(s.owner_kind, s.owner, s.name): s for s in session.slots}
    weight = session.sites[name].weight
    codes = slots[(2, weight.id, "weight" if recipe == "O3" else "weight_cache")]
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.get_slice(f"{name}.weight").get_dtype() == "F8_E4M3"
        found = file.get_tensor(f"{name}.weight").view(torch.uint8)
        assert torch.equal(found.flatten().sort().values, session.tensors[codes.id].flatten().sort().values)
        scale = file.get_tensor(f"{name}.weight_scale_inv")
        assert torch.equal(scale.flatten(), session.tensors[codes.scale_slot].flatten())
        assert list(scale.shape) == ([2, 1] if recipe == "block" else [])
        if recipe != "block":
            x = slots[(1, 0xFFFFFFFF, "x/scale")] if (1, 0xFFFFFFFF, "x/scale") in slots else next(
                s for s in session.slots if s.name == "x/scale" and name in s.labels)
            expected = 1 / session.tensors[x.id][0, x.labels.index(name)]
            assert file.get_tensor(f"{name}.activation_scale") == expected


def test_evaluation_in_fp8_is_within_the_bound_of_its_casts(tmp_path):
    model, _ = trained(te("block", use_autocast_during_eval=True))
    octavo.export(model, tmp_path)
    used = check_linears(model, values(model), tokens(TINY, 2, 16, 9))
    assert 0.01 < used <= 1


def test_serving_casts_inputs_as_training_does(tmp_path):
    """compressed-tensors' own forward casts x with the exported scale. Both have the same codes, so that their logits
    differ by the order of float32 sums alone; casts with other scales differ by 4 % here."""
    loads("compressed-tensors")
    model, _ = trained(te("delayed", use_autocast_during_eval=True), steps=3)
    octavo.export(model, tmp_path, "compressed-tensors")
    served, ids = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval(), tokens(TINY, 2, 16, 9)
    with torch.no_grad():
        ours, theirs = model.eval()(input_ids=ids).logits, served(input_ids=ids).logits
        unquantized = plain_of(model, values(model))(input_ids=ids).logits
    assert (ours - theirs).norm() < 1e-5 * ours.norm()
    assert (ours - unquantized).norm() > 1e-2 * ours.norm()


@pytest.mark.parametrize("recipe", ["delayed", "block", "O3"])
def test_an_export_between_steps_changes_no_byte_of_the_run(tmp_path, recipe):
    def run(exports):
        model, optimizer = trained(options_of(recipe))
        if exports:
            octavo.export(model, tmp_path)
        losses = [train(model, optimizer, tokens(TINY, 2, 16, seed)) for seed in (5, 6)]
        return losses, octavo.state_dict(model), model.state_dict()

    (losses, state, weights), (others, other_state, other_weights) = run(False), run(True)
    assert losses == others
    for one, two in ((state, other_state), (weights, other_weights)):
        for name, value in one.items():
            assert torch.equal(value.reshape(-1).view(torch.uint8), two[name].reshape(-1).view(torch.uint8)), name


@pytest.mark.parametrize("recipe", ["delayed", "mx"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_from_pretrained_needs_no_dtype(tmp_path, recipe, dtype):
    model, _ = octavo.prepare(LlamaForCausalLM(LlamaConfig(**TINY)).to(dtype), overrides=te(recipe))
    octavo.export(model, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.dtype is dtype
    assert (loaded.lm_head.weight.float() - model.lm_head.weight.float()).norm() < 0.05 * model.lm_head.weight.float().norm()


@pytest.mark.parametrize("layout, recipe, reason", REFUSED)
def test_what_a_layout_cannot_hold_is_refused(tmp_path, layout, recipe, reason):
    model, _ = trained(te(recipe), steps=1)
    with pytest.raises(octavo.UnsupportedError, match=reason):
        octavo.export(model, tmp_path / "out", layout)
    assert not (tmp_path / "out").exists()


def test_layers_without_codes_of_their_own_keep_their_values(tmp_path):
    model, _ = trained(te("block"), {"intermediate_size": 192}, steps=1)
    why = octavo.export(model, tmp_path)
    names = {name for name, reason in why.items() if "expect whole blocks of 128 x 128" in reason}
    assert names == {f"model.layers.{i}.mlp.{part}" for i in range(2) for part in ("gate_proj", "up_proj", "down_proj")}
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    for name in names:
        assert torch.equal(loaded.get_submodule(name).weight, model.get_submodule(name).weight), name


def test_a_tied_head_keeps_the_values_of_its_embedding(tmp_path):
    model = LlamaForCausalLM(LlamaConfig(**TINY, tie_word_embeddings=True))
    octavo.prepare(model, overrides=te("delayed"))
    ids = tokens(TINY, 2, 16, 1)
    model(input_ids=ids, labels=ids).loss.backward()
    assert octavo.export(model, tmp_path) == {"lm_head": "another module reads its weight, which has values there"}
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert torch.equal(loaded.lm_head.weight, model.model.embed_tokens.weight)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_modules_that_are_no_linears_are_named(tmp_path):
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=16, n_embd=128, n_layer=1, n_head=2))
    octavo.prepare(model, overrides=te("delayed"))
    ids = tokens({"vocab_size": 256}, 2, 16, 1)
    model(input_ids=ids, labels=ids).loss.backward()
    with pytest.raises(octavo.UnsupportedError, match="expected a layer whose codes.*Conv1D is not an nn.Linear"):
        octavo.export(model, tmp_path)


def test_a_module_without_a_config_gets_one_of_the_quantization_alone(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 16))
    octavo.prepare(model, overrides=te("current"))
    octavo.export(model, tmp_path)
    assert list(json.loads((tmp_path / "config.json").read_text())) == ["quantization_config"]
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert {"0.weight", "0.weight_scale_inv", "0.bias", "1.running_mean", "2.weight"} < set(file.keys())


def test_refusals(tmp_path):
    plain = torch.nn.Linear(32, 32)
    with pytest.raises(octavo.StateError):
        octavo.export(plain, tmp_path)
    octavo.prepare(plain, overrides=te("current"))
    with pytest.raises(octavo.InvalidError, match="layout: expected 'fp8' or 'compressed-tensors', found 'gguf'"):
        octavo.export(plain, tmp_path, "gguf")


def test_a_full_disk_leaves_the_last_export(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64))
    octavo.prepare(model, overrides=te("current"))
    octavo.export(model, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    model[0].weight.data.mul_(2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError):
            octavo.export(model, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
