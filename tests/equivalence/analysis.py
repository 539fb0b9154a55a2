"""What the ledger says about each recipe at each margin, as the plan has fixed it."""
import dataclasses

import paired
from errors import expect
from power import deviation_bound, pairs_needed, power

VOID = "void: the control is not equivalent"


@dataclasses.dataclass(frozen=True)
class Row:
    recipe: object
    margin: object
    n: int           # pairs so far, at most as many as the margin has seeds
    interval: object  # of the differences to the base; None below two pairs
    control: object  # the same for the control, on the same seeds
    verdict: str

    @property
    def finished(self):
        return self.n == self.margin.seeds


def _pairs(plan, ledger, recipe, seeds):
    """Seed -> (loss of the base, loss of the recipe), where both ran."""
    both = {s: (ledger.find(plan.base.name, s), ledger.find(recipe.name, s)) for s in seeds}
    return {s: (a["loss"], b["loss"]) for s, (a, b) in both.items() if a and b}


def _interval(pairs, alpha):
    finite = [p for p in pairs if None not in p]
    if len(finite) < 2:
        return None
    return paired.interval(paired.differences(*zip(*finite)), alpha)


def _verdict(plan, margin, pairs, interval, control_verdict):
    lost = sum(None in p for p in pairs)
    if len(pairs) < margin.seeds:
        return f"running, {len(pairs)} of {margin.seeds}"
    if lost:
        return f"{paired.DIFFERENT}: {lost} runs without a finite loss"
    if control_verdict not in (None, paired.EQUIVALENT):
        return VOID if control_verdict in (paired.NOT_SHOWN, paired.DIFFERENT) else control_verdict
    return paired.verdict(interval, margin.percent)


def rows(plan, ledger, margin):
    """The control first, then the recipes in the plan's order."""
    alpha, seeds, result = plan.test["alpha"], plan.seeds(margin.seeds), []
    control_pairs = _pairs(plan, ledger, plan.control, seeds)
    for recipe in [plan.control, *plan.recipes]:
        pairs = _pairs(plan, ledger, recipe, seeds)
        interval = _interval(pairs.values(), alpha)
        control = _interval([control_pairs[s] for s in pairs if s in control_pairs], alpha)
        of_control = result[0].verdict if result else None
        result.append(Row(recipe, margin, len(pairs), interval, control,
                          _verdict(plan, margin, pairs.values(), interval, of_control)))
    return result


@dataclasses.dataclass(frozen=True)
class Pilot:
    deviations: dict  # by recipe: of the differences to the base
    pooled: float
    freedom: int
    bound: float      # which the true deviation is below, with the plan's confidence


def pilot(plan, ledger):
    """The deviation of a difference, pooled over the pilot's recipes, of which the control is none."""
    deviations, squares, freedom = {}, 0.0, 0
    for record in ledger.runs:
        wanted = plan.settings(plan.recipe(record["recipe"]))
        expect(record["settings"] == wanted, str(ledger.path), f"runs of {record['recipe']} as the plan trains it",
               f"settings {record['settings']}, not {wanted}", "Run the pilot again.")
    for name in plan.pilot["recipes"]:
        if name == plan.base.name:
            continue
        pairs = _pairs(plan, ledger, plan.recipe(name), plan.pilot_seeds())
        expect(len(pairs) > 1, str(ledger.path), f"two or more pairs of {name}", len(pairs), "Run: study.py pilot")
        deviations[name] = paired.deviation(paired.differences(*zip(*pairs.values())))
        if name != plan.control.name:
            squares += deviations[name] ** 2 * (len(pairs) - 1)
            freedom += len(pairs) - 1
    pooled = (squares / freedom) ** 0.5
    return Pilot(deviations, pooled, freedom, deviation_bound(pooled, freedom, plan.test["confidence"]))


def seeds_by_power(plan, sigma):
    """For each margin: the pairs that it needs, and the power of what the plan has."""
    test = plan.test
    return [(m, pairs_needed(sigma, m.percent, m.assumed_difference, test["alpha"], test["power"]),
             power(m.seeds, sigma, m.percent, m.assumed_difference, test["alpha"])) for m in plan.margins]
