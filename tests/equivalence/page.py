"""The part of docs/results/equivalence.md that the ledger decides."""
import math

from analysis import rows
from errors import expect

BEGIN, END = "<!-- study.py report writes from here -->", "<!-- to here -->"


def _interval(i):
    return f"{i.low:+.2f} to {i.high:+.2f}" if i else "-"


def _table(plan, ledger, margin):
    level = 100.0 - 200.0 * plan.test["alpha"]
    out = [f"| Recipe | seeds | mean, % | {level:.0f} % interval, % | control, same seeds, % | verdict | s a run |",
           "|---|---:|---:|---|---|---|---:|"]
    for row in rows(plan, ledger, margin):
        mean = f"{row.interval.mean:+.2f}" if row.interval else "-"
        out.append(f"| {row.recipe.name} | {row.n} | {mean} | {_interval(row.interval)} "
                   f"| {_interval(row.control)} | {row.verdict} | {row.seconds:.0f} |")
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
        out.append(f"Accepted with other plans or builds: {a['reason']} Of {len(a['repeated'])} runs that were "
                   f"repeated, {equal} gave the same bits.")
    return out


def block(plan, ledger, picture):
    out = [BEGIN, "", *_origin(plan, ledger), ""]
    for margin in plan.margins:
        out += [f"### Within {margin.percent:g} %: seeds {plan.seeds()[0]} to {plan.seeds(margin.seeds)[-1]}", "",
                *_table(plan, ledger, margin), ""]
    return out + [f"![Intervals against the margins]({picture})", "", END]


def replaced(text, lines, where):
    """The page with new lines between the markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    expect(begin and end, where, f"the lines {BEGIN} and {END}", "a page without them", "Restore the page.")
    return before + "\n".join(lines) + after
