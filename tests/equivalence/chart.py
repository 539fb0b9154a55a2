"""The intervals against the margins, as an SVG that is readable on light and on dark pages."""
import html

import paired

WIDTH, LEFT, RIGHT, TOP, STEP = 940, 250, 690, 64, 24
STYLE = """
text{font:13px sans-serif;fill:#222}.small{font-size:11px;fill:#555}.title{font-weight:bold;font-size:15px}
.grid{stroke:#ccc}.zero{stroke:#555}.margin{stroke:#b35900;stroke-dasharray:5 3}
.equivalent{stroke:#1b7f4b;fill:#1b7f4b}.different{stroke:#b3261e;fill:#b3261e}.other{stroke:#3465a4;fill:#3465a4}
.running{stroke:#888;fill:none;stroke-dasharray:2 3}
@media (prefers-color-scheme:dark){text{fill:#e6e6e6}.small{fill:#aaa}.grid{stroke:#444}.zero{stroke:#aaa}
.margin{stroke:#ffa657}.equivalent{stroke:#5fd38d;fill:#5fd38d}.different{stroke:#ff7b72;fill:#ff7b72}
.other{stroke:#79b8ff;fill:#79b8ff}}"""


def _kind(row):
    if not row.finished:
        return "running"
    word = row.verdict.split(":")[0]
    return word if word in (paired.EQUIVALENT, paired.DIFFERENT) else "other"


def _text(x, y, words, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{html.escape(words)}</text>'


def _line(x1, y1, x2, y2, kind, width=1):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}" '
            f'stroke-width="{width}"/>')


def svg(rows, margins, confidence):
    """One line for each row of one margin; the lines of all margins are drawn."""
    shown = [r.interval for r in rows if r.interval]
    reach = max([2.0 * max(margins)] + [abs(v) for i in shown for v in (i.low, i.high)])
    reach = min(0.5 * (int(2.0 * reach) + 1), 6.0)
    bottom = TOP + STEP * len(rows)

    def x(value):
        share = (max(-reach, min(reach, value)) + reach) / (2.0 * reach)
        return LEFT + share * (RIGHT - LEFT)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 52}" '
           f'viewBox="0 0 {WIDTH} {bottom + 52}" role="img">',
           "<title>Difference of the validation loss to bf16, with the margins</title>", f"<style>{STYLE}</style>",
           _text(16, 24, "Validation loss, difference to bf16", kind="title"),
           _text(16, 44, f"Mean and {confidence:.0f} % interval of pairs. Grey: runs are missing, no claim.",
                 kind="small")]
    tick = 0.5 if reach <= 3.0 else 1.0
    for i in range(-int(reach / tick), int(reach / tick) + 1):
        out += [_line(x(i * tick), TOP - 8, x(i * tick), bottom, "grid" if i else "zero"),
                _text(x(i * tick), bottom + 16, f"{i * tick:+g} %" if i else "0", "middle", "small")]
    for m in margins:
        for side in (-m, m):
            out.append(_line(x(side), TOP - 8, x(side), bottom, "margin", 1.5))
    out.append(_text((LEFT + RIGHT) / 2, bottom + 38,
                     "dashed: the margins " + " and ".join(f"{m:g} %" for m in margins), "middle", "small"))
    for place, row in enumerate(rows):
        y, kind = TOP + STEP * (place + 0.5), _kind(row)
        out += [_text(LEFT - 12, y + 4, row.recipe.name, "end"), _text(RIGHT + 14, y + 4, row.verdict, kind="small")]
        if row.interval:
            out += [_line(x(row.interval.low), y, x(row.interval.high), y, kind, 2),
                    f'<circle cx="{x(row.interval.mean):.1f}" cy="{y:.1f}" r="4.5" class="{kind}"/>']
    return "\n".join([*out, "</svg>"]) + "\n"
