"""The plan of the study: a TOML file that is committed before the first result.

Its hash goes into every record, so runs made under another plan are not mixed with its own.
"""
import dataclasses
import hashlib
import pathlib
import tomllib

from errors import StudyError, expect

KEYS = {
    "": {"schema", "train", "text", "test", "margin", "pilot", "recipe"},
    "train": {"layers", "heads", "width", "context", "batch", "steps", "rate", "end-rate"},
    "text": {"path", "sha256"},
    "test": {"alpha", "power", "confidence", "first_seed"},
    "margin": {"percent", "assumed_difference", "seeds"},
    "pilot": {"first_seed", "seeds", "recipes"},
    "recipe": {"name", "run", "head", "nudge"},
}
HEADS = {"fp8", "host", "bf16", "fp32"}


@dataclasses.dataclass(frozen=True)
class Recipe:
    name: str
    run: str    # of train_gpt --run
    head: str   # its precision: "fp8", or that of the "host"; "bf16" or "fp32" for runs without FP8
    nudge: bool = False


@dataclasses.dataclass(frozen=True)
class Margin:
    percent: float
    assumed_difference: float  # percent that a recipe may truly cost and still be shown equivalent
    seeds: int


@dataclasses.dataclass(frozen=True)
class Plan:
    path: pathlib.Path
    hash: str
    train: dict
    text: dict
    test: dict
    margins: list
    pilot: dict
    base: Recipe     # what all others are compared with
    control: Recipe  # the base again, one weight one unit in the last place away
    recipes: list    # without base and control

    @property
    def everything(self):
        return [self.base, self.control, *self.recipes]

    def seeds(self, count=None):
        """The study's seeds, or the first `count` of them."""
        first = self.test["first_seed"]
        return range(first, first + (count or max(m.seeds for m in self.margins)))

    def pilot_seeds(self):
        return range(self.pilot["first_seed"], self.pilot["first_seed"] + self.pilot["seeds"])

    def recipe(self, name):
        found = [r for r in self.everything if r.name == name]
        expect(found, f"{self.path}, [[recipe]]", f"the recipe {name} of a record", [r.name for r in self.everything],
               "Restore its entry.")
        return found[0]

    def arguments(self, recipe, seed):
        """Of train_gpt: everything that the numbers of one run depend on."""
        arguments = [] if recipe.head not in ("host", "fp8") else [
            "--config", str(pathlib.Path(__file__).resolve().parent / f"head_in_{recipe.head}.toml")]
        for name, value in self.train.items():
            arguments += [f"--{name}", str(value)]
        arguments += ["--text", self.text["path"], "--seed", str(seed), "--run", recipe.run]
        return arguments + (["--nudge"] if recipe.nudge else [])

    def settings(self, recipe):
        """A hash of what a run's numbers depend on, but for the seed."""
        parts = [self.train, self.text["sha256"], recipe.run, recipe.head, recipe.nudge]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def text_hash(path):
    """Of the names and bytes of the files that train_gpt reads there."""
    root = pathlib.Path(path)
    files = [root] if root.is_file() else sorted(
        f for f in root.glob("*") if f.is_file() and not f.is_symlink())
    hashes = [(f.name, hashlib.sha256(f.read_bytes()).hexdigest()) for f in files]
    return hashlib.sha256(repr(hashes).encode()).hexdigest()


def _keys(path, where, table, optional=()):
    expected = KEYS[where]
    expect(isinstance(table, dict) and expected - set(optional) <= set(table) <= expected,
           f"{path}, [{where}]" if where else str(path), "the keys " + ", ".join(sorted(expected)),
           ", ".join(sorted(table)) if isinstance(table, dict) else repr(table), "Correct the plan.")


def _check(plan):
    names = [r.name for r in plan.everything]
    for recipe in plan.everything:
        expect(recipe.head in HEADS and names.count(recipe.name) == 1, f"{plan.path}, recipe {recipe.name}",
               "a name of its own and the head fp8, host, bf16 or fp32", f"{recipe.head}", "Correct the plan.")
    expect(plan.control.run == plan.base.run, f"{plan.path}, the second recipe",
           f"the base's run {plan.base.run} with nudge = true", plan.control.run, "Correct the plan.")
    seeds = [m.seeds for m in plan.margins]
    percents = [m.percent for m in plan.margins]
    expect(seeds == sorted(seeds) and percents == sorted(percents, reverse=True) and min(seeds) > 2,
           f"{plan.path}, [[margin]]", "falling margins with rising numbers of seeds, 3 or more",
           f"{percents} with {seeds}", "Correct the plan.")
    both = set(plan.seeds()) & set(plan.pilot_seeds())
    expect(not both, f"{plan.path}, first_seed", "seeds that the pilot does not use", f"{sorted(both)} in both",
           "Move one of the two.")


def load(path):
    path = pathlib.Path(path)
    try:
        content = path.read_bytes()
        file = tomllib.loads(content.decode())
    except (OSError, ValueError) as e:
        raise StudyError(str(path), "a plan in TOML", str(e), "Correct the file or its name.") from e
    _keys(path, "", file)
    expect(file["schema"] == 1, f"{path}, schema", "1", file["schema"], "Use the program of that plan.")
    for where in ("train", "text", "test", "pilot"):
        _keys(path, where, file[where])
    for where, optional in (("margin", ()), ("recipe", ("nudge",))):
        for table in file[where]:
            _keys(path, where, table, optional)
    recipes = [Recipe(**table) for table in file["recipe"]]
    expect(len(recipes) > 2 and not recipes[0].nudge and recipes[1].nudge, f"{path}, [[recipe]]",
           "the base first, then the control with nudge = true, then others", [r.name for r in recipes],
           "Correct the plan.")
    plan = Plan(path, hashlib.sha256(content).hexdigest()[:16], file["train"], file["text"], file["test"],
                [Margin(**table) for table in file["margin"]], file["pilot"], *recipes[:2], recipes[2:])
    _check(plan)
    for name in plan.pilot["recipes"]:
        expect(name in [r.name for r in plan.everything], f"{path}, [pilot] recipes", "names of recipes", name,
               "Correct the plan.")
    return plan
