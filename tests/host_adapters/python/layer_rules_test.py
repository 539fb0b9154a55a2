"""[[layers.rule]] in a training of PyTorch: recipes mixed in one model, its report and its state."""
import copy
import json

import pytest
import torch
from torch import nn

import octavo
from conftest import session, te
from octavo import session_run


class Branches(nn.Module):
    """Two linears that share nothing but x, so that each trains as it would alone."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attn, self.mlp, self.head = nn.Linear(160, 48), nn.Linear(160, 64, bias=False), nn.Linear(160, 16)

    def forward(self, x):
        return self.attn(x).square().mean() + self.mlp(x).square().mean() + self.head(x).square().mean()


def train(rules=None, session="delayed", steps=4, every=0, **options):
    model = Branches()
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01),
                                      overrides={**te(session, amax_history_len=2, **options), **(rules or {})},
                                      record_every_n_steps=every)
    go(model, optimizer, steps)
    return model, optimizer


def go(model, optimizer, steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(24, 160, generator=generator)).backward()
        optimizer.step()


def rule(recipe, match="mlp", number=0):
    return {f"layers.rule.{number}.match": match, f"layers.rule.{number}.fp8.te.recipe": recipe}


def layers_of(model):
    return {layer["name"]: layer for layer in json.loads(octavo.report(model, "json"))["layers"]}


@pytest.mark.parametrize("session,other", [("delayed", "block"), ("current", "delayed"), ("rowwise", "current"),
                                           ("block", "current")])
def test_each_layer_trains_as_in_a_session_of_its_recipe(session, other):
    mixed = train(rule(other), session)[0].state_dict()
    alone, of_rule = train(session=session)[0].state_dict(), train(session=other)[0].state_dict()
    for name, value in mixed.items():
        expected = (of_rule if name.startswith("mlp") else alone)[name]
        assert torch.equal(value, expected), name
    assert not torch.equal(alone["mlp.weight"], of_rule["mlp.weight"])  # the recipes do differ


def test_the_report_names_the_rule_of_each_layer():
    rules = {**rule("block"), "layers.rule.1.match": "head", "layers.rule.1.place": "host"}
    model, _ = train(rules)
    layers = layers_of(model)
    assert (layers["mlp"]["placed"], layers["mlp"]["verdict"]["text"]) == ("fp8", "block scaling, E4M3")
    assert layers["mlp"]["rule"]["options"] == {"recipe": {"value": "block", "origin": "override"}}
    assert (layers["head"]["placed"], layers["head"]["rule"]["place"]) == ("host", "host")
    assert "rule" not in layers["attn"] and layers["attn"]["verdict"]["text"] == "delayed scaling, HYBRID"
    assert '; by layers.rule.0: recipe = "block"' in octavo.report(model)


def test_a_state_comes_back_and_another_one_is_refused():
    rules = {"layers.rule.0.match": "mlp", "layers.rule.0.fp8.te.amax_history_len": 3}
    model, optimizer = train(rules)
    state, weights, moments = octavo.state_dict(model), model.state_dict(), copy.deepcopy(optimizer.state_dict())
    assert {key: tuple(value.shape) for key, value in state.items() if key.startswith("session/x/amax_history")} == {
        "session/x/amax_history": (2, 2), "session/x/amax_history@2": (3, 1)}
    again, stepper = train(rules, steps=0)
    again.load_state_dict(weights)
    stepper.load_state_dict(moments)
    octavo.load_state_dict(again, state)
    go(model, optimizer, 3, seed=2)
    go(again, stepper, 3, seed=2)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    with pytest.raises(octavo.InvalidError, match="expected layer_options as in this session.*attn"):
        octavo.load_state_dict(train({**rules, "layers.rule.0.match": "attn"}, steps=0)[0], state)
    with pytest.raises(octavo.InvalidError, match="layer_options.*amax_history_len"):
        octavo.load_state_dict(train(steps=0)[0], state)


def test_recipes_without_a_state_are_compared_as_well():
    state = octavo.state_dict(train(rule("block"), "current")[0])
    octavo.load_state_dict(train(rule("block"), "current", steps=0)[0], state)
    with pytest.raises(octavo.InvalidError, match="layer_options"):
        octavo.load_state_dict(train(rule("mx"), "current", steps=0)[0], state)


def test_reports_in_other_words_change_no_state(monkeypatch):
    state = octavo.state_dict(train(rule("block"), "current")[0])
    monkeypatch.setattr(session_run.Run, "report", lambda run, format="text": "other words")
    again, _ = train(rule("block"), "current", steps=0)
    octavo.load_state_dict(again, state)
    found = octavo.state_dict(again)
    assert found.keys() == state.keys() and all(torch.equal(found[key], value) for key, value in state.items())
    assert session(again).run.identity().split()[0] == "te"
    with pytest.raises(octavo.InvalidError, match="layer_options"):
        octavo.load_state_dict(train(rule("mx"), "current", steps=0)[0], state)


def test_telemetry_counts_the_casts_of_every_recipe():
    model, _ = train(rule("block"), every=1, telemetry=True)
    casts = {(cast["operand"], cast["tensor"]): cast for cast in octavo.telemetry(model)["casts"]}
    assert {tensor for operand, tensor in casts if operand != "w"} == {"attn", "mlp", "head"}
    assert all(20 < cast["sqnr_db"] < 40 for cast in casts.values()), casts
    assert "scale" in casts["x", "attn"] and "scale" not in casts["x", "mlp"]  # of blocks there is no single one


def test_an_evaluation_runs_in_the_hosts_precision_for_every_recipe():
    model, _ = train({**rule("block"), **rule("mx", "attn", 1)})
    plain = Branches()
    plain.load_state_dict(model.state_dict())
    model.eval()
    x = torch.randn(8, 160)
    with torch.no_grad():
        torch.testing.assert_close(model(x), plain(x), rtol=1e-6, atol=0)


def test_shared_weights_have_the_options_of_their_first_layer():
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    model[2].weight = model[0].weight
    model, _ = octavo.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1),
                              overrides={**te("current"), **rule("block", "2")})
    layers = layers_of(model)
    assert (layers["0"]["placed"], layers["2"]["placed"]) == ("fp8", "host")
    assert layers["2"]["verdict"]["reason"] == "option" and "shares its weight" in layers["2"]["verdict"]["text"]


def test_what_the_backend_does_not_follow_is_in_the_report():
    model, _ = train({"layers.rule.0.match": "mlp", "layers.rule.0.fp8.te.telemetry": True}, steps=1)
    warnings = json.loads(octavo.report(model, "json"))["warnings"]
    assert any("layers.rule.0: no layer runs in FP8 with its options; mlp: a host samples" in w for w in warnings)
    assert layers_of(model)["mlp"]["verdict"]["remedy"] == "in layers.rule.0: leave the linear's own option out"


def test_an_export_holds_one_kind_of_scales_and_says_what_is_left_plain(tmp_path):
    model = nn.Sequential(*(nn.Linear(128, 128) for _ in range(3)))
    model, _ = octavo.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), overrides={**te("block"), **rule("mx", "1")})
    model(torch.randn(4, 128)).square().mean().backward()
    why = octavo.export(model, tmp_path)
    assert list(why) == ["1"] and "other scales than 0" in why["1"]
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert config["weight_block_size"] == [128, 128] and config["modules_to_not_convert"] == ["1"]
