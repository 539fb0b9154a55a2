"""The gates as a chart in SVG: one row a gate, ratios on a logarithmic axis.

Only gates whose ratio is better when it is higher; the few others stand in the table.
"""
import html
import math

from gate_rules import BELOW, OK

LEFT, RIGHT, TOP, STEP = 400, 90, 64, 26
WIDTH = 960
COLORS = {OK: "#1b7f4b", BELOW: "#c0392b"}
OTHER = "#5b6770"


def axis(values):
    """Powers of two around all values, at least 1/2 to 2."""
    low = math.floor(math.log2(min([0.5, *values])))
    high = math.ceil(math.log2(max([2.0, *values])))
    return [2.0 ** e for e in range(low, high + 1)]


def text(x, y, content, anchor="start", size=12, color="#222", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{color}" font-weight="{weight}">{html.escape(content)}</text>')


def line(x1, y1, x2, y2, color, width=1.0, dash=""):
    extra = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
            f'stroke-width="{width}"{extra}/>')


def svg(results, subtitle):
    shown = [r for r in results if r.value is not None and r.gate.kind == "rate"]
    values = [v for r in shown for v in (r.value, r.goal.floor, r.goal.moonshot) if v]
    ticks = axis(values)
    bottom = TOP + STEP * len(shown)
    height = bottom + 84
    span = math.log2(ticks[-1]) - math.log2(ticks[0])

    def x(value):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(value) - math.log2(ticks[0])) / span

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" role="img">',
           "<title>CPU kernels: ratios against floors and moonshots</title>",
           f'<rect width="{WIDTH}" height="{height}" fill="#fcfcfa"/>',
           text(16, 26, "CPU kernels: ratios of medians within one run", size=16, weight="bold"),
           text(16, 46, subtitle, color="#555")]
    for tick in ticks:
        out.append(line(x(tick), TOP - 4, x(tick), bottom, "#999" if tick == 1 else "#dedede"))
        label = f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}"
        out.append(text(x(tick), bottom + 16, label, "middle", color="#444"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 36,
                    "ratio to the opponent, logarithmic (higher is better)", "middle",
                    color="#444"))
    for i, r in enumerate(shown):
        y = TOP + STEP * i + STEP / 2
        color = COLORS.get(r.verdict, OTHER)
        out.append(text(16, y + 4, r.gate.id, weight="bold"))
        out.append(text(74, y + 4, r.gate.title if len(r.gate.title) <= 58
                        else r.gate.title[:56] + "...", size=10.5))
        out.append(line(x(ticks[0]), y, x(r.value), y, color, 2))
        if r.goal.floor:
            out.append(line(x(r.goal.floor), y - 9, x(r.goal.floor), y + 9, "#c77700", 2.5))
        if r.goal.moonshot:
            out.append(line(x(r.goal.moonshot), y - 9, x(r.goal.moonshot), y + 9, "#3465a4", 2.5,
                            "3 2"))
        out.append(f'<circle cx="{x(r.value):.1f}" cy="{y:.1f}" r="5" fill="{color}"/>')
        out.append(text(WIDTH - RIGHT + 12, y + 4, f"{r.value:.2f}", color=color, weight="bold"))
    y = bottom + 64
    out += [f'<circle cx="24" cy="{y - 4}" r="5" fill="{COLORS[OK]}"/>', text(36, y, "meets its floor"),
            f'<circle cx="154" cy="{y - 4}" r="5" fill="{COLORS[BELOW]}"/>', text(166, y, "below it"),
            f'<circle cx="244" cy="{y - 4}" r="5" fill="{OTHER}"/>', text(256, y, "not judged"),
            line(350, y - 13, 350, y + 5, "#c77700", 2.5), text(360, y, "floor"),
            line(416, y - 13, 416, y + 5, "#3465a4", 2.5, "3 2"), text(426, y, "moonshot"),
            "</svg>"]
    return "\n".join(out) + "\n"
