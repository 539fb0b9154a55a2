"""The arguments of octavo.prepare, as a user writes them: configurations without a file, and names of before."""
import copy
import json
import os
import pathlib
import pickle
import subprocess

import pytest
import torch
from torch import nn

import octavo
from conftest import session, te


EVERY = {"layers.skip": []}  # the head as well


def model_of():
    return nn.ModuleDict({"body": nn.Linear(32, 32), "up": nn.Linear(32, 32), "lm_head": nn.Linear(32, 32)})


def options_of(config=None, **arguments):
    model, _ = octavo.prepare(model_of(), None, config, **arguments)
    run = session(model).run
    return run.backend, run.options()


@pytest.mark.parametrize(("recipe", "overrides"), (
    ("te.block", te("block")), ("te.current", te("current")), ("te", {"fp8.backend": "te"}),
    ("msamp.O2", {"fp8.backend": "msamp", "fp8.msamp.opt_level": "O2"}),
    ("msamp.O1", {"fp8.backend": "msamp", "fp8.msamp.opt_level": "O1"})))
def test_a_recipe_is_a_backend_and_its_choice(recipe, overrides):
    assert options_of(recipe=recipe) == options_of(overrides=overrides)


def test_a_recipe_counts_before_the_file_and_overrides_before_both(tmp_path):
    path = tmp_path / "octavo.toml"
    path.write_text('[fp8]\nbackend = "te"\n[fp8.te]\nrecipe = "block"\nmargin = 0\n')
    assert options_of(path, recipe="te.current")[1]["recipe"] == "current"
    assert options_of(path, recipe="te.current", overrides={"fp8.te.recipe": "delayed"})[1]["recipe"] == "delayed"


@pytest.mark.parametrize(("recipe", "says"), (
    (3, 'recipe: expected "<backend>.<recipe>", such as "te.block"'), ("te.", "recipe: expected"), ("", "recipe: expected"),
    ("te.blok", "recipe"), ("nobody.block", "nobody")))
def test_a_malformed_recipe(recipe, says):
    with pytest.raises(octavo.OctavoError, match=says):
        octavo.prepare(model_of(), None, recipe=recipe)


TABLES = {"fp8": {"backend": "te", "te": {"recipe": "delayed", "amax_history_len": 4, "use_autocast_during_eval": True}},
          "layers": {"skip": ["*head*", 'odd "name" \\ \x7f'], "rule": [{"match": ["up"], "fp8": {"te": {"recipe": "block"}}}]}}
TEXT = r"""
[fp8]
backend = "te"
[fp8.te]
recipe = "delayed"
amax_history_len = 4
use_autocast_during_eval = true
[layers]
skip = ["*head*", "odd \"name\" \\ \u007f"]
[[layers.rule]]
match = ["up"]
fp8.te.recipe = "block"
"""


def defaults_of_torch():
    return json.loads(octavo.report(octavo.prepare(model_of(), None)[0], "json"))


def defaults_of_jax():
    numpy, jax = pytest.importorskip("numpy"), pytest.importorskip("octavo.jax")
    weights = {name: numpy.zeros((32, 32), "float32") for name in ("body", "up", "lm_head")}
    return json.loads(jax.report(jax.init(weights), "json"))


def defaults_of(file):
    return json.loads(octavo.report(octavo.prepare(model_of(), None, file)[0], "json"))


def octavo_program(*arguments):
    program = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"]).parent / "bin" / "octavo"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def written_by_init(folder):
    octavo_program("init", "--yes", "--output", folder / "octavo.toml")
    return folder / "octavo.toml"


SAMPLES = pathlib.Path(__file__).parents[3] / "samples"


@pytest.mark.parametrize("of", (
    lambda _: defaults_of_jax(), lambda folder: defaults_of(written_by_init(folder)),
    lambda _: defaults_of(SAMPLES / "python/octavo.toml"), lambda _: defaults_of(SAMPLES / "train_gpt/octavo.toml"),
    lambda _: json.loads(octavo_program("check", "--json"))), ids=("jax", "init", "sample", "train_gpt", "check"))
def test_one_default_everywhere(of, tmp_path):
    """What octavo.prepare does without a file, against every other way to say nothing. For LibTorch:
    Prepare.DefaultsAreThoseOfEveryHost."""
    ours, theirs = defaults_of_torch(), of(tmp_path)

    def chosen(report):
        return report["backend"]["id"], {name: option["value"] for name, option in report["options"].items()}

    assert chosen(theirs) == chosen(ours) and ours["options"]["amax_history_len"]["value"] == 16
    placed = {layer["name"]: layer["placed"] for layer in ours["layers"]}
    assert placed == {"body": "fp8", "up": "fp8", "lm_head": "host"} and chosen(ours)[0] == "te"
    if "layers" in theirs:
        assert {layer["name"]: layer["placed"] for layer in theirs["layers"]} == placed
    else:
        assert json.loads(octavo_program("config", "show", "--json"))["settings"]["layers.skip"]["value"] == ["*head*"]


def test_a_dict_is_the_file_that_it_spells():
    ours, theirs = (octavo.prepare(model_of(), None, config)[0] for config in (TABLES, octavo.Config(text=TEXT)))
    for of in (lambda s: s.run.options(), lambda s: s.run.layer_options(), lambda s: list(s.sites),
               lambda s: {name: str(v).partition(" (")[0] for name, v in s.verdicts.items()}):
        assert of(session(ours)) == of(session(theirs))
    assert list(session(ours).sites) == ["body", "up"] and session(ours).run.layer_options() == {"up": {"recipe": "block"}}


def test_dotted_names_on_top_of_a_dict():
    assert options_of({"fp8.te.recipe": "block", "fp8": {"backend": "te"}}) == options_of(recipe="te.block")


@pytest.mark.parametrize(("config", "says"), (
    ({"fp8": {"te": {"margin": None}}}, "config: fp8.te.margin: expected a bool, int.*found NoneType"),
    ({3: 4}, "config: expected texts as keys, found 3"), ({"fp8": {"te": {"margn": 1}}}, "margn"),
    (3, "config: expected the path of an octavo.toml, a dict, an octavo.Config or None, found int")))
def test_a_dict_that_is_no_configuration(config, says):
    with pytest.raises(octavo.InvalidError, match=says):
        octavo.prepare(model_of(), None, config)


@pytest.mark.parametrize(("skip", "names"), (
    ([], ["body", "up", "lm_head"]), (["body", "*head*"], ["up"]), (("up",), ["body", "lm_head"])))
def test_overrides_take_lists(skip, names):
    model, _ = octavo.prepare(model_of(), None, overrides={"layers.skip": skip})
    assert octavo.report(model).fp8 == names
    rules = {"layers.rule.0.match": ["up", "lm_head"], "layers.rule.0.place": "host"}
    assert octavo.report(octavo.prepare(model_of(), None, overrides={**EVERY, **rules})[0]).fp8 == ["body"]


@pytest.mark.parametrize(("key", "says"), (
    ("fp8.backend", r'fp8.backend: expected a text, found a list of texts \(\["te"\]\)'),
    ("fp8.te.recipe", "overrides: fp8.te.recipe: expected a bool, int, float or str, found list"),
    ("layers.rule.0.fp8.te.recipe", "overrides: layers.rule.0.fp8.te.recipe: expected a bool, int, float or str, found list")))
def test_a_list_where_the_key_is_none_is_refused(key, says):
    with pytest.raises(octavo.InvalidError, match=says):
        octavo.prepare(model_of(), None, overrides={key: ["te"]})


def test_skipped_names_are_not_converted_and_stay_so():
    model, optimizer = octavo.prepare(model_of(), None, recipe="te.delayed", skip=["*head*"])
    for stage in ("first", "second", "copied", "pickled"):
        assert list(session(model).sites) == ["body", "up"] and type(model["lm_head"]) is nn.Linear, stage
        assert session(model).left_out == {"lm_head": 'runs in the host: skip names it (pattern "*head*")'}, stage
        model = {"first": lambda: octavo.prepare(model)[0], "second": lambda: octavo.prepare(copy.deepcopy(model))[0],
                 "copied": lambda: octavo.prepare(pickle.loads(pickle.dumps(model)))[0], "pickled": lambda: None}[stage]()
    assert model is None


def test_another_stage_skips_others():
    model, _ = octavo.prepare(model_of(), None, recipe="te.delayed", skip=["*head*"], overrides=EVERY)
    model, _ = octavo.prepare(model, None, skip=["up"])
    assert list(session(model).sites) == ["body", "lm_head"]


def test_a_pattern_skips_parts_of_a_module():
    model, _ = octavo.prepare(nn.ModuleDict({"a": nn.MultiheadAttention(32, 2)}), None, recipe="te.delayed",
                              skip=["a.k", "*.out_proj"])
    assert list(session(model).sites) == ["a.q", "a.v"]


def test_a_pattern_without_a_layer_is_named_once():
    with pytest.warns(UserWarning, match='skip: no layer matches "heads"') as said:
        octavo.prepare(model_of(), None, recipe="te.delayed", skip=["heads", "up"])
    assert len(said) == 1


@pytest.mark.parametrize("skip", ("*head*", [3]))
def test_skip_is_a_list_of_patterns(skip):
    with pytest.raises(octavo.InvalidError, match=r'skip: expected a list of patterns of names, such as \["\*head\*"\]'):
        octavo.prepare(model_of(), None, skip=skip)


@pytest.mark.parametrize(("old", "new"), (("filter", "module_filter="), ("gather", "fsdp_gather="),
                                          ("telemetry", "record_every_n_steps="), ("check_every", "detect_writes=")))
def test_a_name_of_before_is_one_error_with_the_new_one(old, new):
    model = model_of()
    with pytest.raises(octavo.InvalidError, match=f"^octavo.prepare: {old}= has another name now; give {new}$"):
        octavo.prepare(model, None, **{old: None})
    assert not any("octavo_session" in m.__dict__ for m in model.modules())


def test_a_name_of_before_is_an_error_in_every_framework():
    accelerate, transformers, lightning = (pytest.importorskip(f"octavo.{name}") for name in (
        "accelerate", "transformers", "lightning"))
    for call, old in ((transformers.OctavoCallback, "gather"), (transformers.OctavoCallback, "telemetry"),
                      (lightning.OctavoPrecision, "filter"), (lightning.OctavoPrecision, "telemetry"),
                      (lambda **o: accelerate.prepare(None, None, None, **o), "gather"),
                      (accelerate.Accelerator, "octavo_gather")):
        with pytest.raises(octavo.InvalidError, match=f"{old}= has another name now; give "):
            call(**{old: "fp8"})


def test_a_trainer_takes_a_recipe(tmp_path):
    transformers = pytest.importorskip("octavo.transformers")
    model = model_of()
    transformers.OctavoCallback(recipe="te.block", skip=["*head*"]).on_init_end(
        torch.nn.Module(), None, None, model=model)
    assert session(model).run.options()["recipe"] == "block" and list(session(model).sites) == ["body", "up"]


def stepped(model):
    model["body"](torch.randn(4, 32)).sum().backward()
    return model


def test_a_report_says_first_how_many_linears_are_in_fp8_then_which_then_what_was_chosen():
    model, _ = octavo.prepare(model_of(), None, recipe="te.delayed", skip=["*head*"], overrides={"layers.skip": "up"})
    report = octavo.report(model)
    lines = str(report).splitlines()
    assert lines[0] == report.summary == "1 of 1 linears in FP8 (te, delayed); 2 not converted"
    assert lines[1:4] == ["layers", "  body  [32, 32]      fp8   delayed scaling, HYBRID",
                          '  up    [32, 32]      host  runs in the host: layers.skip names it (pattern "up", override)']
    at = lines.index("options")
    assert lines[at + 1] == '  recipe = "delayed"  (override)' and not lines[at + 2].startswith("  ")
    assert report.fp8 == ["body"] and list(report.host) == ["up", "lm_head"]
    assert "skip names it" in report.host["lm_head"] and "layers.skip names it" in report.host["up"]


def test_a_report_is_its_data_on_every_way():
    model, _ = octavo.prepare(model_of(), None, recipe="te.block", overrides=EVERY)
    report = octavo.report(model)
    assert json.loads(octavo.report(model, "json")) == report.to_dict() == octavo.report(model, "tree").to_dict()
    for other in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert type(other) is octavo.torch.Report and other == report and other.to_dict() == report.to_dict()
    assert repr(report) == str(report) == f"{report}" and report.summary.startswith("3 of 3 linears in FP8 (te, block)")


def test_a_report_as_html_escapes_what_it_shows():
    model = nn.ModuleDict({"<b>": nn.Linear(32, 32)})
    octavo.prepare(model, None, recipe="te.block")
    text = octavo.report(model)._repr_html_()
    assert "<td>&lt;b&gt;</td><td>32 x 32</td><td>fp8</td>" in text and "<b>" not in text
    assert text.startswith("<p>1 of 1 linears in FP8 (te, block)</p><table>")


def test_a_report_asserts_layers_that_ran():
    model, _ = octavo.prepare(model_of(), None, recipe="te.delayed", skip=["*head*"])
    octavo.report(model).assert_fp8(min_layers=2)
    with pytest.raises(AssertionError, match=r"at least 3 linears in FP8, found 2\n  lm_head: runs in the host: skip"):
        octavo.report(model).assert_fp8(min_layers=3)
    report = octavo.report(stepped(model))
    report.assert_fp8()
    with pytest.raises(AssertionError, match="at least 2 linears in FP8, found 1\n  up: no forward called it"):
        report.assert_fp8(min_layers=2)


def test_a_report_of_another_precision():
    model, _ = octavo.prepare(model_of(), None, overrides={"mixed_precision": "bf16"})
    report = octavo.report(model)
    assert report.summary == "no linear in FP8: the model runs in bf16" and report.fp8 == []
    with pytest.raises(AssertionError, match="found 0"):
        report.assert_fp8()


def test_a_report_of_a_layer_with_a_recipe_of_its_own():
    model, _ = octavo.prepare(model_of(), None, TABLES)
    assert '; by layers.rule.0: recipe = "block"' in octavo.report(model)


def test_what_needs_no_model_is_text_with_data():
    for function, key in ((octavo.explain, "candidates"), (octavo.list_plugins, "plugins"), (octavo.probe, "cpu")):
        found = function(overrides={"fp8.backend": "te"})
        assert found == str(found) and key in found.to_dict() and repr(found) == str(found)
        assert pickle.loads(pickle.dumps(found)).to_dict().keys() == found.to_dict().keys()
        assert json.loads(function(overrides={"fp8.backend": "te"}, format="json")).keys() == found.to_dict().keys()
    assert octavo.explain({"fp8": {"backend": "nobody"}}).to_dict()["runs"] != "fp8"


def test_a_printed_model_shows_what_computes_its_layers():
    model = nn.ModuleDict({"a": nn.Linear(32, 32), "up": nn.Linear(32, 32), "m": nn.MultiheadAttention(32, 2)})
    plain = str(model)
    octavo.prepare(model, None, {**TABLES, "layers": {"rule": TABLES["layers"]["rule"]}})
    assert "(a): Linear(in_features=32, out_features=32, bias=True, fp8=te/delayed)" in str(model)
    assert "(up): Linear(in_features=32, out_features=32, bias=True, fp8=te/block)" in str(model)
    assert "(m): MultiheadAttention(\n    fp8=te/delayed" in str(model)
    assert str(octavo.restore(model)) == plain


def test_fp8_is_off_for_a_while():
    model, _ = octavo.prepare(model_of(), None, recipe="te.delayed")
    x = torch.randn(4, 32)
    expected = nn.functional.linear(x, model["up"].weight, model["up"].bias)
    with octavo.disabled(model):
        assert torch.equal(model["up"](x), expected)
    assert not torch.equal(model["up"](x), expected)
    with octavo.disabled(model, "body"):
        assert not torch.equal(model["up"](x), expected)
