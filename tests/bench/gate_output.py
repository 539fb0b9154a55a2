"""Output of gates.py: a table for the terminal, Markdown between two markers with gates and rates as CSV, a chart."""
import csv
import os
import pathlib

from gate_table import ELSEWHERE

BEGIN = "<!-- gates.py --markdown writes from here -->"
END = "<!-- to here -->"


def number(value):
    if value is None:
        return "-"
    return f"{value:.3g}" if value >= 10 or value < 0.3 else f"{value:.2f}"


def rows_of(results):
    for r in results:
        yield (r.gate.id, r.gate.title, number(r.value), number(r.goal.floor),
               number(r.goal.moonshot), r.verdict + (f": {r.reason}" if r.reason else ""))


HEADER = ("gate", "ratio of medians", "today", "floor", "moonshot", "verdict")


def table(results):
    rows = [HEADER, *rows_of(results)]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = []
    for row in rows:
        cells = [row[i].ljust(widths[i]) if i < 2 else row[i].rjust(widths[i]) for i in range(5)]
        lines.append("  ".join([*cells, row[5]]))
    lines += [f"{name}  elsewhere: {where}" for name, where in ELSEWHERE]
    return "\n".join(lines)


def machine_lines(run, machine):
    p = run.peaks["before"]
    lines = [f"Column: {machine.column}. Kernels: {run.context.get('kernels', 'unknown')}. "
             f"oneDNN: {run.context.get('onednn', 'none')}. One thread unless a row names more."]
    if p.get("fma512"):
        lines.append(f"Peaks of one core: fp32 {p['fma512']:.0f} GFLOP/s (512 bits), "
                     f"{p['fma256']:.0f} (256 bits); bf16 dots {p['dot512']:.0f}; "
                     f"non-temporal copy {p['nt_copy']:.1f} GB/s.")
    return lines + [f"Note: {n}." for n in machine.notes]


def rate_rows(run):
    """Every rate, in units of 1e9 a second."""
    for name in sorted(run.medians):
        rate = run.medians[name].get("rate")
        if rate and not name.startswith("Boundary/"):
            yield name, f"{rate / 1e9:.2f}"
        elif name.startswith("Boundary/"):
            yield name, f"{run.medians[name]['ns']:.1f} ns"
        else:
            yield name, f"{run.medians[name]['ns'] / 1e3:.0f} us"


def markdown(run, machine, results, chart=None, stem="rates"):
    """The gates that are not met, and the machine. chart, stem: the chart and the start of the CSV files, as seen from the page."""
    others = [row for r, row in zip(results, rows_of(results)) if r.verdict not in ("ok", "reported")]
    lines = [f"![Ratios against floors and moonshots]({chart})", ""] if chart else []
    lines += [*machine_lines(run, machine), "",
              f"Gates that are met: {sum(r.verdict == 'ok' for r in results)}. [{stem}_gates.csv]({stem}_gates.csv) has each "
              f"gate, [{stem}.csv]({stem}.csv) each rate, in 1e9 elements, FLOP, bytes or parameters a second."]
    if others:
        lines += ["", "The others:", "", f"| {' | '.join(HEADER)} |", "|---|---|---|---|---|---|",
                  *(f"| {' | '.join(row)} |" for row in others)]
    return "\n".join(lines)


def write_csv(path, *rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def replace_between(text, content):
    """`text` with everything between the markers replaced; ValueError without both of them."""
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        raise ValueError(f"expected the lines '{BEGIN}' and '{END}', in this order")
    return f"{text[:begin]}{BEGIN}\n\n{content}\n\n{text[end:]}"


def write_markdown(path, run, machine, results, chart=None):
    file = pathlib.Path(path)
    text = file.read_text(encoding="utf-8")
    near = os.path.relpath(chart, file.parent) if chart else None
    write_csv(file.with_suffix(".csv"), ("row", "median"), *rate_rows(run))
    write_csv(file.with_name(f"{file.stem}_gates.csv"), HEADER, *rows_of(results),
              *((name, f"elsewhere: {where}", "", "", "", "") for name, where in ELSEWHERE))
    content = markdown(run, machine, results, near, file.stem)
    file.write_text(replace_between(text, content), encoding="utf-8")
