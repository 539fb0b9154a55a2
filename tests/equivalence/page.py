"""The part of docs/results/equivalence.md that the ledger decides."""
import csv
import io
import math

from analysis import rows
from errors import expect

BEGIN, END = "<!-- study.py report writes from here -->", "<!-- to here -->"


def table(plan, ledger):
    """CSV. A row for the control and each recipe: of each margin, over its seeds, the mean difference in percent of bf16's
    loss, the interval that the test uses, and the verdict."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    head = ["Recipe"]
    for m in plan.margins:
        claim = f"within {m.percent:g} %, seeds {plan.seeds()[0]} to {plan.seeds(m.seeds)[-1]}"
        head += [f"{claim}: {what}" for what in ("mean", "from", "to", "verdict")]
    out.writerow(head)
    for of_recipe in zip(*(rows(plan, ledger, margin) for margin in plan.margins)):
        cells = [of_recipe[0].recipe.name]
        for row in of_recipe:
            i = row.interval
            cells += [f"{v:+.2f}" for v in (i.mean, i.low, i.high)] if i else ["", "", ""]
            cells.append(row.verdict)
        out.writerow(cells)
    return text.getvalue()


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


def block(plan, ledger, picture, intervals):
    return [BEGIN, "", *_origin(plan, ledger), "", f"[{intervals}]({intervals}) has each mean, interval and verdict.", "",
            f"![Intervals against the margins]({picture})", "", END]


def replaced(text, lines, where):
    """The page with new lines between the markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    expect(begin and end, where, f"the lines {BEGIN} and {END}", "a page without them", "Restore the page.")
    return before + "\n".join(lines) + after
