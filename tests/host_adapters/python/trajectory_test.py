"""Products along a recorded trajectory: the recorded numbers, floors of each recipe, and planted errors."""
import json

import pytest
import trajectory
from trajectory import NUMBERS, PAGE, PRODUCTS, RECIPES, compare, found_by, recorded, table

GAIN, DB = 1e-3, 0.1  # fp32 sums in another order change neither by a hundredth of this
# dB: the lowest of all layers and steps, less one. docs/results/trajectory.md has the table.
HYBRID = {"y": 27.5, "dx": 22.4, "dw": 22.5}
FLOORS = {**dict.fromkeys(("te delayed", "te current"), HYBRID),
          **dict.fromkeys(("te block", "te mx", "te rowwise"), {"y": 27.7, "dx": 26.6, "dw": 27.3}),
          "te delayed, stochastic": {"y": 27.5, "dx": 19.7, "dw": 20.3},
          "te mx, stochastic": {"y": 27.7, "dx": 25.1, "dw": 25.6},
          **dict.fromkeys(("msamp O1", "msamp O2", "msamp O3"), HYBRID)}
EXPECTED = json.loads(NUMBERS.read_text(encoding="utf-8"))
# Products that are 1.01 times too large where scale_inv of the codes of one operand is: of the weight in
# its slot; of x and dy, whose scale_inv no host sees, by the linearity of products in it.
PLANTED = ("weight", "x", "dy")
LAYERS = ("2/blocks.0.qkv", "2/head", "60/blocks.1.up", "60/blocks.1.down")


def faults(recipe, name, found, exact):
    """What of the products of one layer is not as recorded, or below the floor."""
    said = []
    for product in PRODUCTS:
        gain, db = compare(found[product], exact[product])
        wanted = EXPECTED[recipe][product][name]
        if abs(gain - wanted[0]) > GAIN or abs(db - wanted[1]) > DB or db < FLOORS[recipe][product]:
            said.append(f"{recipe}, {name}, {product}: gain {gain:.5f}, {db:.2f} dB; expected {wanted}")
    return said


@pytest.fixture(scope="module")
def operands():
    return recorded()


@pytest.mark.parametrize("recipe", RECIPES)
def test_products_are_as_recorded(operands, recipe):
    said = [f for name, o in operands.items() for f in faults(recipe, name, found_by(RECIPES[recipe], o), o.products())]
    assert not said, "\n".join(said)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("operand", PLANTED)
def test_one_percent_of_one_scale_is_found(operands, operand, layer):
    recipe, o = "te current", operands[layer]

    def plant(session):
        slot = next(s for s in session.slots if s.name == "weight_cache/scale_inv")
        session.tensors[slot.id].mul_(1.01)

    found = found_by(RECIPES[recipe], o, plant if operand == "weight" else None)
    for product in {"weight": (), "x": ("y", "dw"), "dy": ("dx", "dw")}[operand]:
        found[product] = found[product] * 1.01
    wrong = {"weight": ["y", "dx"], "x": ["y", "dw"], "dy": ["dx", "dw"]}[operand]
    assert [f.split(": ")[0].rpartition(", ")[2] for f in faults(recipe, layer, found, o.products())] == wrong


def test_the_page_has_these_numbers():
    assert table(EXPECTED) in PAGE.read_text(encoding="utf-8")


def test_floors_are_of_the_recipes_that_there_are():
    assert FLOORS.keys() == RECIPES.keys() == EXPECTED.keys()
    assert all(set(EXPECTED[r][p]) == set(trajectory.recorded()) for r in RECIPES for p in PRODUCTS)
