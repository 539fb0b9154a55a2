"""The arguments of octavo.prepare, as a user writes them: configurations without a file, and names of before."""
import copy
import pickle

import pytest
import torch
from torch import nn

import octavo
from conftest import session, te


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


def test_a_list_among_overrides_names_the_two_places_for_lists():
    with pytest.raises(octavo.InvalidError, match="lists are for config=.* and skip= takes patterns"):
        octavo.prepare(model_of(), None, overrides={"layers.skip": ["*head*"]})


def test_skipped_names_are_not_converted_and_stay_so():
    model, optimizer = octavo.prepare(model_of(), None, recipe="te.delayed", skip=["*head*"])
    for stage in ("first", "second", "copied", "pickled"):
        assert list(session(model).sites) == ["body", "up"] and type(model["lm_head"]) is nn.Linear, stage
        assert session(model).left_out == {"lm_head": 'runs in the host: skip names it (pattern "*head*")'}, stage
        model = {"first": lambda: octavo.prepare(model)[0], "second": lambda: octavo.prepare(copy.deepcopy(model))[0],
                 "copied": lambda: octavo.prepare(pickle.loads(pickle.dumps(model)))[0], "pickled": lambda: None}[stage]()
    assert model is None


def test_another_stage_skips_others():
    model, _ = octavo.prepare(model_of(), None, recipe="te.delayed", skip=["*head*"])
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
