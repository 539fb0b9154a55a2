"""From a run of bench_cpu to verdicts: rates, the machine's column, ratios.

The column follows from what the machine does, never from its name: the 512-bit multiply-adds of a
Zen 4 take two passes (512 bits / 256 bits = 1.0), those of a Zen 5 one (2.0).
"""
import dataclasses
import json
import math

from gate_table import GATES, Goal

BELOW, OK, REPORTED, MISSING = "below floor", "ok", "reported", "not measured"
SKIPPED = "not judged"

# What two threads must do at once, in the best rate of one, for their gates to be judged.
TWO_DOTS, TWO_COPIES = 1.9, 1.8
# And how much of two cores each of their rows must have had, in seconds of the process a second.
TWO_BUSY = 1.6


class BadRun(Exception):
    """The output of bench_cpu is not what was expected."""


@dataclasses.dataclass(frozen=True)
class Run:
    medians: dict   # row -> {"rate", "ns", counters}
    errors: dict    # row -> why it did not run
    context: dict
    peaks: dict     # {"before": {...}, "after": {...}}


@dataclasses.dataclass(frozen=True)
class Machine:
    column: str             # "Zen 4", "Zen 5", "unclassified", "other"
    trusted: bool           # the core's peaks are plausible and steady
    steady_copy: bool       # so is the memory's
    memory: bool            # memory gates are judged: its balance with the core is ordinary
    notes: tuple = ()
    two_cores: bool = True  # two threads do twice what one does
    two_copies: bool = True


@dataclasses.dataclass(frozen=True)
class Result:
    gate: object
    value: float = None
    goal: Goal = Goal()
    verdict: str = MISSING
    reason: str = ""
    parts: tuple = ()       # ((row, best opponent, ratio), ...)


def row_name(name):
    """The name without what Google Benchmark adds for its clocks and counts."""
    parts = [p for p in name.split("/")
             if p not in ("real_time", "manual_time", "process_time")
             and not p.startswith(("iterations:", "repeats:", "min_time:", "threads:"))]
    return "/".join(parts)


def parse(text, peaks_text):
    """Run from bench_cpu's JSON and the file of --peaks_out."""
    try:
        data = json.loads(text)
        peaks = json.loads(peaks_text)
        rows = data["benchmarks"]
        context = data["context"]
        assert {"before", "after"} <= peaks.keys()
    except (ValueError, KeyError, TypeError, AssertionError) as e:
        raise BadRun(f"expected the JSON of bench_cpu and its peaks, found something else: {e}")
    units = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
    medians, errors, single = {}, {}, {}
    for row in rows:
        name = row_name(row.get("run_name", row["name"]))
        if row.get("error_occurred"):
            errors[name] = row.get("error_message", "no reason given")
            continue
        values = {k: v for k, v in row.items() if isinstance(v, (int, float))}
        # The clock that the row asked for; else the time of its own thread, whatever else runs.
        clock = "real_time" if "_time" in row["name"] else "cpu_time"
        values["ns"] = row[clock] * units[row["time_unit"]]
        values["rate"] = row.get("items_per_second")
        if row.get("run_type") == "aggregate":
            if row.get("aggregate_name") == "median":
                medians[name] = values
        else:
            single.setdefault(name, values)
    # One repetition has no aggregates: it is its own median.
    return Run({**single, **medians}, errors, context, peaks)


def gain(run, two, one):
    """What two threads do together in the unit of one, before or after the rows: the worse."""
    return min(p.get(two, 0) / p[one] if p[one] > 0 else 0
               for p in (run.peaks["before"], run.peaks["after"]))


def classify(run):
    """Which floors apply, and whether this run may be judged."""
    before, after = run.peaks["before"], run.peaks["after"]
    level = run.context.get("kernels", "unknown")
    if not before.get("dot512") or level != "cpu.avx512_bf16":
        why = f"kernels {level}" if before.get("dot512") else "no AVX-512 BF16 and VBMI"
        return Machine("other", True, True, True,
                       (f"{why}: only exactness and never-slower are gated",))
    notes, moved = [], set()
    for name in ("fma512", "fma256", "dot512", "nt_copy"):
        low, high = sorted((before[name], after[name]))
        if low <= 0 or high / low > 1.06:
            moved.add(name)
            notes.append(f"{name} went from {before[name]} to {after[name]}, more than 6 %")
    trusted = moved <= {"nt_copy"}
    dot = before["dot512"] / before["fma512"]
    if not 1.8 <= dot <= 2.2:
        trusted = False
        notes.append(f"vdpbf16ps / fp32 multiply-adds = {dot:.2f}, expected 2.0 within 10 %")
    width = before["fma512"] / before["fma256"]
    column = "Zen 4" if width <= 1.3 else "Zen 5" if width >= 1.7 else "unclassified"
    balance = before["dot512"] / before["nt_copy"] if before["nt_copy"] else math.inf
    memory = 5 <= balance <= 14
    notes.append(f"512 / 256 bits = {width:.2f}, {balance:.1f} FLOP a byte of copy")
    if not memory:
        notes.append("that balance is outside 5 to 14: memory gates are reported only")
    dots = gain(run, "two_dots", "dot512")
    copies = gain(run, "two_copies", "nt_copy")
    notes.append(f"two threads / one: {dots:.2f} in dots, {copies:.2f} in copies")
    return Machine(column, trusted, "nt_copy" not in moved, memory, tuple(notes),
                   dots >= TWO_DOTS, copies >= TWO_COPIES)


def goal_of(gate, column):
    if column == "Zen 4":
        return gate.zen4
    if column == "Zen 5":
        return gate.zen5
    if column == "other":
        return gate.other
    # Unclassified: the easier of both.
    easier = min if gate.kind == "rate" else max
    pick = lambda a, b: None if a is None or b is None else easier(a, b)
    return Goal(pick(gate.zen4.floor, gate.zen5.floor), pick(gate.zen4.moonshot, gate.zen5.moonshot))


def reason_for(run, row):
    if row in run.errors:
        return f"{row}: {run.errors[row]}"
    if "dnnl" in row and "onednn" not in run.context:
        return "bench_cpu was built without oneDNN (apt-get install libdnnl-dev)"
    if "openblas" in row and "openblas" not in run.context:
        return "bench_cpu was built without OpenBLAS (apt-get install libopenblas-dev)"
    return f"no row {row}"


def ratio(run, gate, row, opponents):
    """(ratio, best opponent) or (None, reason)."""
    if row not in run.medians:
        return None, reason_for(run, row)
    if gate.kind == "ms":
        return run.medians[row]["ns"] / 1e6, ""
    if not opponents:
        return gate.factor * run.medians[row]["rate"], ""
    present = [o for o in opponents if o in run.medians]
    if not present:
        return None, reason_for(run, opponents[0])
    ours = run.medians[row]
    if gate.kind == "rate":
        best = max(present, key=lambda o: run.medians[o]["rate"])
        return gate.factor * ours["rate"] / run.medians[best]["rate"], best
    peer = present[0]
    if gate.kind == "time":
        return ours["ns"] / run.medians[peer]["ns"], peer
    if gate.kind == "extra_ns":
        return ours["ns"] - run.medians[peer]["ns"], peer
    return ours[gate.counter] / run.medians[peer][gate.counter], peer


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def had_two_cores(run, machine, gate):
    """Around the rows by the peaks, and during them: every row ran on both for most of its time."""
    rows = {row for pair in gate.pairs for row in (pair[0], *pair[1])} & run.medians.keys()
    busy = all(run.medians[row]["cpu_time"] >= TWO_BUSY * run.medians[row]["real_time"]
               for row in rows)
    return busy and machine.two_cores and (machine.two_copies or not gate.memory)


def judge(run, machine, gate):
    goal = goal_of(gate, machine.column)
    parts = []
    for row, opponents in gate.pairs:
        value, other = ratio(run, gate, row, opponents)
        if value is None:
            return Result(gate, None, goal, MISSING, other)
        parts.append((row, other, value))
    value = geometric_mean([p[2] for p in parts]) if len(parts) > 1 else parts[0][2]
    result = dataclasses.replace(Result(gate, value, goal), parts=tuple(parts))
    if gate.threads == 2 and not had_two_cores(run, machine, gate):
        return dataclasses.replace(result, verdict=SKIPPED, reason="two cores were not free")
    if goal.floor is None:
        return dataclasses.replace(result, verdict=REPORTED)
    # What counts bytes is as true on a busy machine.
    if gate.kind != "counter" and not machine.trusted:
        return dataclasses.replace(result, verdict=SKIPPED, reason="the core's peaks moved")
    if gate.memory and not machine.memory:
        return dataclasses.replace(result, verdict=REPORTED)
    if gate.memory and not machine.steady_copy:
        return dataclasses.replace(result, verdict=SKIPPED, reason="the copy's rate moved")
    met = value >= goal.floor if gate.kind == "rate" else value <= goal.floor
    return dataclasses.replace(result, verdict=OK if met else BELOW)


def judge_all(run, machine, gates=GATES):
    return [judge(run, machine, gate) for gate in gates]
