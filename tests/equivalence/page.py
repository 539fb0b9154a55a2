"""The part of docs/results/equivalence.md that the ledger decides."""
import math

from analysis import rows
from errors import expect

BEGIN, END = "<!-- study.py report writes from here -->", "<!-- to here -->"


def _table(plan, ledger):
    """A row for the control and each recipe; of each margin, over its seeds, the mean difference in percent with its interval."""
    level = 100.0 - 200.0 * plan.test["alpha"]
    columns = [f"within {m.percent:g} %, seeds {plan.seeds()[0]} to {plan.seeds(m.seeds)[-1]} | verdict" for m in plan.margins]
    out = [f"In percent of bf16's loss: the mean of the pairs, and its {level:.0f} % interval.", "",
           f"| Recipe | {' | '.join(columns)} |", "|---|" + "---|---|" * len(columns)]
    for of_recipe in zip(*(rows(plan, ledger, margin) for margin in plan.margins)):
        cells = (f"{row.interval.mean:+.2f} ({row.interval.low:+.2f} to {row.interval.high:+.2f}) | {row.verdict}"
                 if row.interval else f"- | {row.verdict}" for row in of_recipe)
        out.append(f"| {of_recipe[0].recipe.name} | {' | '.join(cells)} |")
    return out


def _origin(plan, ledger):
    total = len(plan.everything) * len(plan.seeds())
    hours = math.fsum(r["seconds"] for r in ledger.runs) / 3600.0
    builds = {r["build"] for r in ledger.runs}
    skipped = sum(r["skipped"] for r in ledger.runs)
    out = [f"{len(ledger.runs)} of {total} runs, {hours:.1f} hours of one core. Plan `{plan.hash}`.",
           f"Builds: {', '.join(f'`{b}`' for b in sorted(builds)) or 'none'}. "
           f"Processors: {', '.join(sorted({r['cpu'] for r in ledger.runs})) or 'none'}. Skipped steps: {skipped}."]
    for a in ledger.accepted:
        equal = sum(r["recorded"] == r["found"] for r in a["repeated"])
        out.append(f"Accepted with other plans or builds: {a['reason']} Of {len(a['repeated'])} repeated runs {equal} were "
                   "bit-identical.")
    return list(dict.fromkeys(out))


def block(plan, ledger, picture):
    out = [BEGIN, "", *_origin(plan, ledger), ""]
    return out + [*_table(plan, ledger), "", f"![Intervals against the margins]({picture})", "", END]


def replaced(text, lines, where):
    """The page with new lines between the markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    expect(begin and end, where, f"the lines {BEGIN} and {END}", "a page without them", "Restore the page.")
    return before + "\n".join(lines) + after
