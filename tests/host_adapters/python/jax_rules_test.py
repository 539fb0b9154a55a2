"""[[layers.rule]] in JAX: recipes mixed in one state."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import octavo
import octavo.jax as oj
from jax_parts import batch, overrides, train_step, weights


def loss(p, x):
    """Two linears that share nothing but x, so that each trains as it would alone."""
    return sum(jnp.mean(oj.linear(name, x, p[name])**2) for name in ("one", "two"))


def trained(recipe, rules=None, steps=3):
    p = weights({"one": (64, 160), "two": (48, 160)})
    state = oj.init(p, overrides=overrides(recipe, **{"fp8.te.amax_history_len": 2, **(rules or {})}))
    step = jax.jit(lambda state, p, x: train_step(state, p, x, loss))
    for seed in range(steps):
        _, p, state = step(state, p, batch(seed, cols=160))
    return p, state


def rule(recipe, match="two"):
    return {"layers.rule.0.match": match, "layers.rule.0.fp8.te.recipe": recipe}


def test_each_linear_trains_as_with_its_recipe_for_all():
    mixed, alone, of_rule = (trained(*of)[0] for of in (("delayed", rule("block")), ("delayed",), ("block",)))
    assert np.array_equal(mixed["one"], alone["one"])
    assert np.array_equal(mixed["two"], of_rule["two"])
    assert not np.array_equal(alone["two"], of_rule["two"])


def test_histories_of_both_sets_of_options_are_in_the_state():
    _, state = trained("delayed", {"layers.rule.0.match": "two", "layers.rule.0.fp8.te.amax_history_len": 3}, steps=1)
    assert {key: value.shape for key, value in state.slots.items() if key.startswith("session/x/amax_history")} == {
        "session/x/amax_history": (2, 1), "session/x/amax_history@2": (3, 1)}
    assert np.all(np.asarray(state.slots["session/x/amax_history@2"]).max(axis=0) > 0)


def test_a_stack_has_one_set_of_options():
    stacked = {"layers": jnp.ones((3, 32, 32))}
    with pytest.raises(octavo.UnsupportedError, match="same options for all 3 stacked.*recipe.*layers.rule"):
        oj.init(stacked, overrides=overrides("current", **rule("block", "layers.1")))
    assert oj.init(stacked, overrides=overrides("current", **rule("block", "layers.*"))).slots
