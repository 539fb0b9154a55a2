"""Models of transformers with adapters of PEFT: unmerged, merged, and on parameters of experts."""
import copy

import peft
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

import octavo
from conftest import msamp, session, te
from export_parts import TINY, check_casts, read, tokens, train, values

BACKENDS = [te(), te("current"), msamp("O1"), msamp("O2")]
IDS = ["delayed", "current", "O1", "O2"]


def adapted(**options):
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    return peft.get_peft_model(model, peft.LoraConfig(
        r=8, target_modules=["q_proj", "down_proj"], init_lora_weights=False, **options))


def prepared(model, overrides):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    return octavo.prepare(model, optimizer, overrides=overrides, module_filter=lambda _, name: "lm_head" not in name)


def trained(overrides, **options):
    model, optimizer = prepared(adapted(**options), overrides)
    ids = tokens(TINY, 2, 16, 3)
    for _ in range(3):
        train(model, optimizer, ids)
    return model


def dense(model):
    """The plain state of a copy, with what PEFT itself merges."""
    plain = octavo.restore(copy.deepcopy(model))
    return plain.merge_and_unload().state_dict()


@pytest.mark.parametrize("overrides", BACKENDS, ids=IDS)
@pytest.mark.parametrize("options", [{}, {"use_dora": True}], ids=["lora", "dora"])
def test_an_unmerged_model_is_refused_and_a_merged_one_exported(tmp_path, overrides, options):
    model = trained(overrides, **options)
    with pytest.raises(octavo.UnsupportedError, match=r"found PEFT's in .*q_proj.*call model = model.merge_and_unload\(\)"):
        octavo.export(model, tmp_path)
    assert not list(tmp_path.iterdir())
    expected = dense(model)
    merged = model.merge_and_unload()
    why = octavo.export(merged, tmp_path)
    assert why.pop("lm_head") == "excluded by module_filter"
    found = values(merged)
    assert len(found) + len(why) == 14
    check_casts(found, {name: expected[f"{name}.weight"] for name in found})
    loaded, ids = read(tmp_path), tokens(TINY, 2, 16, 3)
    for name, reason in why.items():  # a delayed scale is of the weight before the merge
        assert overrides == te() and "the scale of the last step" in reason and ("q_proj" in name or "down_proj" in name)
        assert torch.allclose(loaded.get_submodule(name).weight, expected[f"{name}.weight"], atol=1e-6)
    plain = LlamaForCausalLM(LlamaConfig(**TINY)).eval()
    plain.load_state_dict(expected)
    with torch.no_grad():
        loss = plain(input_ids=ids, labels=ids).loss.item()
        assert loaded(input_ids=ids, labels=ids).loss.item() == pytest.approx(loss, rel=0.05)


@pytest.mark.parametrize("overrides", BACKENDS, ids=IDS)
def test_a_merged_model_is_prepared_again_and_restored(overrides):
    model = trained(overrides)
    expected = dense(model)
    merged = model.merge_and_unload()
    merged.requires_grad_(True)
    merged, optimizer = prepared(merged, overrides)
    assert len(session(merged).sites) == 14 and "lora" not in "".join(session(merged).sites)
    ids = tokens(TINY, 2, 16, 3)
    first = train(merged, optimizer, ids)
    for _ in range(10):
        last = train(merged, optimizer, ids)
    assert last < first
    again = trained(overrides).merge_and_unload()
    octavo.restore(again)
    for name, value in again.state_dict().items():
        assert torch.allclose(value, expected[name], rtol=1e-2, atol=1e-3), name  # msamp's weights are float16


def test_a_merged_model_is_the_prepared_one():
    model = trained(te()).merge_and_unload()
    assert "te" in octavo.report(model)
    octavo.step(model)
    assert octavo.state_dict(model) and session(model).holder() is model


def test_a_part_of_a_prepared_model_is_no_model():
    model, _ = octavo.prepare(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Sequential(torch.nn.Linear(32, 32))),
                              overrides=te())
    with pytest.raises(octavo.StateError, match="found a part of one that is prepared already"):
        octavo.prepare(model[1], overrides=te())
    with pytest.raises(octavo.StateError, match="found one that was not prepared"):
        octavo.export(model[1], "nowhere")
    assert session(model).sites


@pytest.mark.parametrize("wrap", [torch.compile, torch.nn.DataParallel], ids=["compile", "DataParallel"])
def test_wrappers_that_change_names_do_not_reach_the_file(tmp_path, wrap):
    model, _ = octavo.prepare(LlamaForCausalLM(LlamaConfig(**TINY)), overrides=te("current"))
    octavo.export(wrap(model), tmp_path)
    assert read(tmp_path).state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("overrides", [te(), msamp("O2")], ids=["te", "msamp"])
def test_adapters_on_parameters_are_left_out_by_name(overrides):
    """PEFT parametrizes 3-D parameters of experts in each forward."""
    torch.manual_seed(1)
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4))
    plain = peft.get_peft_model(model, peft.LoraConfig(
        r=4, target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]))
    model = copy.deepcopy(plain)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    model, optimizer = octavo.prepare(model, optimizer, overrides=overrides)
    left_out = session(model).left_out
    assert any("experts" in name and "target_parameters" in reason for name, reason in left_out.items()), left_out
    assert not any("experts" in name for name in session(model).sites)
    ids = torch.randint(0, 64, (2, 16))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    assert loss.item() == pytest.approx(plain(input_ids=ids, labels=ids).loss.item(), rel=0.02)
