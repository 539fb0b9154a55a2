"""The report of the first hour on a GPU: one HTML file with every verdict, figure and reason."""
import html
import json

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3em .6em;border-bottom:1px solid #ddd;
vertical-align:top}pre{background:#f4f4f4;padding:.8em;overflow:auto}.passed,.met{color:#0a6b2d}
.failed,.missed{color:#b00020;font-weight:bold}.not{color:#8a5a00}"""
TAIL = 60  # lines of a log that the page quotes


def table(head, rows):
    cells = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"


def verdict(text):
    return f'<span class="{html.escape(text.split()[0])}">{html.escape(text)}</span>'


def figures(out, results):
    """The table of goals, of the benches that wrote one."""
    rows, trainings, machine = [], [], {}
    for result in results:
        path = out / f"{result['name']}.bench.json"
        if not path.exists():
            continue
        bench = json.loads(path.read_text(encoding="utf-8"))
        machine = bench["machine"]
        for goal in bench["goals"]:
            measured = f"{goal['measured']:.3f}" if "measured" in goal else html.escape(goal["not_measured"])
            rows.append((goal["goal"], html.escape(goal["what"]), measured, goal["wanted"], goal["moonshot"],
                         verdict(goal.get("verdict", "not measured")) + html.escape(
                             f" {goal['wrong']}" if goal.get("wrong") else "")))
            trainings += [(html.escape(d["run"]), f"{d['tokens_per_s']:,.0f}", f"{d.get('peak_gib', 0):.1f}",
                           f"{d['loss']:.4f}" if "loss" in d else "")
                          for d in goal.get("details", []) if isinstance(d, dict) and "run" in d]
    if not rows:
        return ""
    told = ", ".join(f"{k} {v}" for k, v in machine.items())
    return f"<h2>Figures</h2><p>{html.escape(told)}</p>" + table(
        ("Goal", "What", "Measured", "Wanted", "Moonshot", "Verdict"), rows) + (
        "<h2>Trainings of G13</h2>" + table(("Run", "Tokens a second", "Peak GiB", "Loss"), trainings) if trainings else "")


def write(out, machine, results):
    """results: dicts of name, what, verdict, reason, seconds, in the order of the steps."""
    count = {}
    for result in results:
        count[result["verdict"]] = count.get(result["verdict"], 0) + 1
    summary = ", ".join(f"{n} {kind}" for kind, n in count.items()) or "nothing ran"
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><title>Octavo on a GPU</title>",
             f"<style>{STYLE}</style><h1>Octavo on a GPU</h1><p>{html.escape(summary)}</p>",
             table(("Machine", ""), [(html.escape(k), html.escape(v)) for k, v in machine.items()]),
             "<h2>Steps</h2>",
             table(("Step", "What", "Verdict", "Seconds"),
                   [(html.escape(r["name"]), html.escape(r["what"]), verdict(r["verdict"]),
                     f"{r['seconds']:.0f}" if r["seconds"] else "") for r in results])]
    absent = [r for r in results if r["verdict"].startswith("not")]
    if absent:
        parts += ["<h2>What was not done, and why</h2>",
                  table(("Step", "Reason"), [(html.escape(r["name"]), html.escape(r["reason"])) for r in absent])]
    parts.append(figures(out, results))
    for r in results:
        log = out / f"{r['name']}.log"
        if r["verdict"] == "failed":
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
            parts.append(f"<h2>{html.escape(r['name'])} failed: {html.escape(r['reason'])}</h2>"
                         f"<pre>{html.escape(chr(10).join(lines[-TAIL:]))}</pre>")
    (out / "report.html").write_text("\n".join(parts) + "</html>\n", encoding="utf-8")
    return summary
