"""Transformer Engine's recipe classes against the options of the backend te.

The classes come from the published package, loaded by path (transformer_engine/common/recipe), so
they need pydantic and nothing else. Every configuration of te_recipes.py is constructed there and
given to `octavo check` here. Both accept, or both refuse and Octavo names an option that was given;
where they differ on purpose, the table says why, and a difference that is gone is a failure, too.
Then the defaults are compared, field by field.

Usage: te_recipes_test.py <octavo> <linear_probe>
"""

import enum
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy

import probe
from te_recipes import CLASSES, CONFIGURATIONS, OPTIONS

# Fields that have no option of their own: the reason.
NO_OPTION = {
    "fp8_gemm_fprop": "products accumulate in fp32 always",
    "fp8_gemm_dgrad": "products accumulate in fp32 always",
    "fp8_gemm_wgrad": "products accumulate in fp32 always",
    "x_block_scaling_dim": "blocks of x are 1 x 128, which is TE's default",
    "w_block_scaling_dim": "blocks of w are 128 x 128, which is TE's default",
    "grad_block_scaling_dim": "blocks of dy are 1 x 128, which is TE's default",
    "fp4_format": "codes are E2M1, the only format that TE allows",
    "row_scaled_activation": "x has one second level of scales, which is TE's default",
    "nvfp4_4over6": "blocks are scaled to 6, which is TE's default",
    "nvfp4_4over6_e4m3_use_256": "of blocks that are scaled to 4 or 6",
    "nvfp4_4over6_err_mode": "of blocks that are scaled to 4 or 6",
}
# The only field whose default Octavo spells otherwise: "default" chooses by recipe, so the numbers
# of a layer have to show what it means.
BY_RECIPE = "fp8_format"
# The default that differs: {option: (TE's, Octavo's)}.
OWN = {"amax_history_len": (1024, 16)}


def load_recipes():
    # The classes read NVTE_ variables when they are defined; the table is about their defaults.
    for name in [n for n in os.environ if n.startswith("NVTE_")]:
        del os.environ[name]
    path = pathlib.Path(sys.prefix, "apart/transformer_engine/common/recipe/__init__.py")
    spec = importlib.util.spec_from_file_location("te_recipe", path)
    module = importlib.util.module_from_spec(spec)
    # The annotations of the classes are texts, which pydantic looks up in the module.
    sys.modules["te_recipe"] = module
    spec.loader.exec_module(module)
    return module


def te_answer(recipes, recipe, fields):
    """(accepts, the error or the object)."""
    arguments = {
        name: getattr(recipes.Format, value[1:]) if str(value).startswith("@") else
        recipes.MMParams(use_split_accumulator=value == "split") if name.startswith("fp8_gemm") else
        value
        for name, value in fields.items()
    }
    try:
        return True, getattr(recipes, CLASSES[recipe])(**arguments)
    except (AssertionError, TypeError, ValueError) as e:  # pydantic's ValidationError is a ValueError
        return False, str(e).replace("\n", " ")


def as_option(value):
    """How a value of a recipe class is written for --set."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if callable(value):
        return f"{value.__module__}:{value.__name__}"
    if isinstance(value, enum.Enum):
        return value.name
    return str(value).removeprefix("@")


def octavo_answer(program, recipe, fields):
    """(accepts, what was said against it, the options in effect)."""
    command = [program, "check", "--json", "--set", "fp8.backend=te", "--set", "plugins.trust=dev",
               "--set", f"fp8.te.recipe={recipe}"]
    for name, value in fields.items():
        # Without a function the field is None, which is the empty text here.
        text = "" if name == "scaling_factor_compute_algo" and value is None else as_option(value)
        command += ["--set", f"fp8.te.{OPTIONS.get(name, name)}={text}"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 2:
        return False, result.stdout + result.stderr, {}
    if result.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}: exit code {result.returncode}: {result.stderr}")
    report = json.loads(result.stdout)
    against = [f"{v['text']}; found {v['evidence']}" for c in report["candidates"]
               for v in c["verdicts"] if v["decision"] == "decline"]
    return result.returncode == 0, "; ".join(against), report.get("options", {})


def check(recipes, program, recipe, fields, difference):
    """The faults of one configuration."""
    te_accepts, te_said = te_answer(recipes, recipe, fields)
    accepts, said, _ = octavo_answer(program, recipe, fields)
    te_word, word = ("accepts" if a else "refuses" for a in (te_accepts, accepts))
    faults = []
    if difference is None and te_accepts != accepts:
        faults.append(f"expected one answer, found: TE {te_word} ({te_said}), octavo {word} ({said})")
    if difference is not None and te_accepts == accepts:
        faults.append(f"expected a difference ({difference}), found that both answer: {word}")
    names = [OPTIONS.get(n, n) for n in fields] or [recipe]
    if not accepts and not any(name in said for name in names):
        faults.append(f"expected a refusal that names one of {', '.join(names)}, found: {said}")
    return faults


def check_defaults(recipes, program, recipe):
    """Every field of the class has an option with an equal default or one of OWN, or a reason to have none."""
    _, te_object = te_answer(recipes, recipe, {})
    _, said, options = octavo_answer(program, recipe, {})
    if not options:
        return [f"expected octavo to run the recipe with its defaults, found: {said}"]
    faults = []
    for name in type(te_object).__dataclass_fields__:
        option = OPTIONS.get(name, name)
        if name in NO_OPTION or option == BY_RECIPE:
            continue
        theirs = getattr(te_object, name)
        if option in OWN and theirs == OWN[option][0]:
            theirs = OWN[option][1]
        expected = as_option(theirs)
        if name == "scaling_factor_compute_algo":
            expected = ""
        if option not in options:
            faults.append(f"field {name}: expected an option {option}, found none")
        elif as_option(options[option]["value"]) != expected:
            faults.append(f"default of {option}: expected {expected}, found "
                          f"{as_option(options[option]['value'])}")
    return faults


def check_default_format(recipes, linear_probe, recipe):
    """dx of the default equals that of the format TE's class names, bit for bit, and of no other."""
    _, te_object = te_answer(recipes, recipe, {})
    data = probe.operands(0, (48, 32, 64), probe.normal)
    dx = {name: probe.octavo_linear(linear_probe, [f'recipe = "{recipe}"', f'fp8_format = "{name}"'],
                                    *data)[1]
          for name in ("default", "HYBRID", "E4M3")}
    equal = [n for n in ("HYBRID", "E4M3") if numpy.array_equal(dx[n], dx["default"])]
    if equal != [te_object.fp8_format.name]:
        return [f"default of fp8_format: expected {te_object.fp8_format.name}, found the numbers of "
                f"{' and '.join(equal) or 'neither'}"]
    return []


def main(program, linear_probe):
    recipes = load_recipes()
    failed = 0

    def report(what, faults):
        nonlocal failed
        failed += bool(faults)
        for fault in faults:
            print(f"FAILED {what}: {fault}")

    differences = 0
    for recipe, fields, difference in CONFIGURATIONS:
        shown = ", ".join(f"{n}={as_option(v)}" for n, v in fields.items())
        report(f"{CLASSES[recipe]}({shown})", check(recipes, program, recipe, fields, difference))
        differences += difference is not None
    for recipe in ("delayed", "current", "block", "mx", "nvfp4"):
        report(f"{CLASSES[recipe]}()", check_defaults(recipes, program, recipe))
    for recipe in ("delayed", "current", "block", "mx"):  # nvfp4 has one format
        report(f"{CLASSES[recipe]}()", check_default_format(recipes, linear_probe, recipe))

    # The check has to see a wrong table.
    if not check(recipes, program, "delayed", {"fp8_format": "@E5M2"}, "planted"):
        report("planted difference", ["expected a fault, found none"])
    if not check(recipes, program, "delayed", {"margin": -3}, None):
        report("planted agreement", ["expected a fault, found none"])
    print(f"{len(CONFIGURATIONS)} configurations, {differences} of them with a stated difference, "
          f"and the defaults of 5 recipes: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
