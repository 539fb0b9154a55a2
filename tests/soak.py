"""Long campaigns: tests that run for hours, each round with a seed of its own.

  python3 tests/soak.py --hours 4 [--only NAME ...] [--seed N] [--ledger FILE]
  soak.py --list | --self-test

`bash tests/run.sh soak --hours 4` builds what this needs first. The campaign that has run for the
shortest time is next, until the time is over; a round that has begun ends. Each round is a line of the
ledger, docs/results/soak.csv, from which the next call goes on: with the next seed of each campaign. The
page next to it, soak.md, has their sums. A round that fails does not stop the others. Exit code 1: a round
failed; its output is in out/soak.
"""
import argparse
import collections
import csv
import dataclasses
import io
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEDGER = ROOT / "docs" / "results" / "soak.csv"
SUMMARY = "<!-- summary -->"
NOT_THERE = re.compile(r"No tests were found|_NOT_BUILT|Unable to find executable")
EXECUTED = re.compile(r"stat::number_of_executed_units: (\d+)")


@dataclasses.dataclass
class Campaign:
    name: str
    what: str
    tests: str  # a regular expression of ctest
    cases: int  # in a round; 0: counted by the fuzzers
    preset: str = "torch"
    variables: dict = dataclasses.field(default_factory=dict)


CAMPAIGNS = [
    Campaign("flips", "bits of checkpoints, refused or equal",
             r"^(CheckpointFlipsTest\.as_many.*|ResumeRest\.flipped.*)$", 6 * 588),
    Campaign("kills", "runs that are killed while they save, and resumed", r"^All/StateKill\.", 6),  # at least
    Campaign("power", "power losses while a program saves, and the run after them", r"^PowerLoss\.", 300,
             variables={"OCTAVO_POWER_LOSSES": "100"}),
    Campaign("ranks", "faults of one rank of 2 to 4, and the restart after them", r"^Python\.rank_faults$", 10,
             variables={"OCTAVO_RANK_FAULTS": "10"}),
    Campaign("swaps", "exchanges of a library that is being checked", r"^PathPolicySwap", 10000,
             variables={"OCTAVO_SWAP_TRIES": "10000"}),
    Campaign("threads", "probe, open and close in 64 threads", r"^Stress\.", 2 * 64 * 100,
             variables={"OCTAVO_STRESS_CYCLES": "100"}),
    Campaign("allocations", "allocations of calls, trainings and prepared models, each of which fails once",
             r"^All/((TrainGpt)?OutOfMemory\.|TrainGptEveryAllocation\.|TorchOutOfMemory\.every)",
             100000, variables={"OCTAVO_STRIDE": "1"}),
    Campaign("casts", "numbers of 32 bits, each to float16 and to both formats of 8 bits", r"^Float(8|16)Exhaustive\.", 3 << 32,
             variables={"OCTAVO_STRIDE": "1"}),
    Campaign("sizes", "sizes of the linear of every recipe of te", r"^Recipes/TeAllSizes\.", 5 * 36**3,
             variables={"OCTAVO_STRIDE": "1"}),
    Campaign("calls", "calls of the system of octavo and its helper, each of which fails once with one of Linux's errors",
             r"^All/SystemCalls\.", 3 * 7000, variables={"OCTAVO_SYSTEM_CALLS": "7000"}),
    Campaign("hostile", "damaged libraries through the check and its helper", r"^HostileFiles\.seeded", 1500),
    Campaign("arguments", "lists of any words as arguments of octavo", r"^CliArguments\.any_words", 2000,
             variables={"OCTAVO_ARGUMENT_LISTS": "2000"}),
    Campaign("states", "damaged states that PyTorch's adapter loads", r"^Python\.state_damage$", 1500,
             variables={"OCTAVO_STATES": "500"}),
    Campaign("orders", "device code with threads and blocks in unfair orders",
             r"^Cuda(Adam|Gemm|Prologue|Quantize|QuantizeWide|Scales|Sums|Values)\.", 1,
             variables={"OCTAVO_ORDER_SEED": "{seed}000000"}),
    Campaign("barriers", "barriers and shuffles of device code, each left out, which a test must miss",
             r"^CudaBarriers\.each_is_needed$", 1),
    Campaign("interrupts", "signals in training, whose handlers raise, evaluate, save and step", r"^Python\.interrupts_all$",
             57000),
    Campaign("steps", "plugins of the C++ headers, trained for 150 steps", r"^Package\.cpp_(headers|plugins_train_150)", 1),
    Campaign("devices", "guides, frameworks and checks of conformance on the fake device",
             r"^(Python\.fake_device\.each\..*|conformance\.(te|msamp)\.cuda\..*\.(access|extents(\.empty)?|failures|fused|grouped"
             r"|nonfinite|purity(\.(arguments|order|sessions))?))$", 100),
    Campaign("emulated", "programs of kernels on levels of AVX-512 whose instructions the CPU emulates", r"^KernelsEmulated\.", 43),
    Campaign("planted", "defects that device code had once, planted again", r"^CudaPlanted\.", 9),
    Campaign("mutants", "mistakes planted in te, which octavo plugin verify must find", r"^conformance\.mutants\.sample$", 5),
    Campaign("models", "models prepared and restored in one process, which leave no memory, descriptor or thread behind",
             r"^Python\.processes$", 5000, variables={"OCTAVO_MODELS": "5000"}),
    Campaign("pairs", "programs of strangers in each precision and models in each loop: the next pairs of both each round",
             r"^(Strangers\.(torch|packages)|Python\.models)$", 140),
    Campaign("late", "kernels that run late, in another order each round", r"^Python\.late$", 69),
    Campaign("mutation", "changed lines of trust, elf, negotiate and checkpoint, which a unit test must notice",
             r"^Mutation\.sample$", 80),
    Campaign("mechanisms", "what closes a kind of fault, undone, which a test must notice", r"^Mutation\.mechanisms$", 7),
    Campaign("memcheck", "programs of kernels under valgrind, on levels avx2 and baseline", r"^Kernels\.valgrind_memcheck$", 12,
             variables={"OCTAVO_MEMCHECK": "all"}),
    Campaign("kernels", "faults planted in kernels, each under every check of octavo plugin verify",
             r"^conformance\.kernels\.faults_whole$", 120),
    Campaign("training", "FP8 ends where plain training does, at the default size",
             r"^TrainGptDefaultSize\.", 1),
    Campaign("sources", "product sources, each compiled by itself", r"^Repo\.compile_alone$", 240),
    Campaign("debian", "Debian packages installed in a Debian of their own, used and purged", r"^Package\.debian$", 6),
    Campaign("processors", "PyTorch for aarch64 by qemu: the wheel, and weights equal to those of x86-64", r"^Package\.aarch64_torch$", 7),
    Campaign("releases", "two releases of one commit and two builds in two folders, equal; the recipe for Conan",
             r"^Package\.(release_twice|builds_are_equal|conan)$", 5),
    Campaign("aarch64", "the suite, kernels of another release and the packages for aarch64, by qemu",
             r"^(Aarch64\.verify_.*|Abi\.v1_rc4\.trains_on_old_kernels|Package\.aarch64)$", 5, "cpu-aarch64"),
] + [
    Campaign(f"fuzz_{name}", "inputs of a fuzzer", rf"^Fuzz\.{name}$", 0, "cpu-asan",
             {"OCTAVO_FUZZ_SECONDS": "120", "OCTAVO_FUZZ_KEEP": "1"})
    for name in ("c_abi", "data", "elf", "lock", "manifest", "state", "toml", "wire")
]


@dataclasses.dataclass
class Round:
    campaign: str
    seed: int
    cases: int
    seconds: int
    result: str  # passed, failed
    commit: str


COLUMNS = [field.name for field in dataclasses.fields(Round)]


def read_rounds(text):
    return [Round(row["campaign"], int(row["seed"]), int(row["cases"]), int(row["seconds"]), row["result"], row["commit"])
            for row in csv.DictReader(io.StringIO(text))]


def ledger_of(rounds):
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerows([COLUMNS] + [dataclasses.astuple(r) for r in rounds])
    return out.getvalue()


def written(page, rounds):
    """The page with the sums of these rounds."""
    failed = collections.Counter(r.campaign for r in rounds if r.result != "passed")
    return page.partition(SUMMARY)[0] + (
        f"{SUMMARY}\n\nSo far: {len(rounds)} rounds of {len({r.campaign for r in rounds})} campaigns, "
        f"{sum(r.cases for r in rounds):,} cases in {sum(r.seconds for r in rounds) / 3600:.1f} hours. Failed rounds: "
        + (", ".join(f"{n} of `{name}`" for name, n in failed.items()) or "0") + ".\n")


def put(path, text):
    draft = path.with_suffix(path.suffix + ".draft")
    draft.write_text(text)
    draft.replace(path)


def next_campaign(campaigns, rounds):
    spent = {c.name: 0 for c in campaigns}
    for r in rounds:
        if r.campaign in spent:
            spent[r.campaign] += r.seconds
    return min(campaigns, key=lambda c: spent[c.name])


def next_seed(campaign, rounds):
    return 1 + max((r.seed for r in rounds if r.campaign == campaign.name), default=0)


def build_of(campaign):
    build = ROOT / "build" / campaign.preset
    if campaign.preset == "torch" and not build.is_dir():  # it has what cpu has, and more
        build = ROOT / "build" / "cpu"
    return build


def run(campaign, seed, commit):
    variables = {name: value.format(seed=seed) for name, value in campaign.variables.items()}
    log = ROOT / "out" / "soak" / f"{campaign.name}-{seed}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    build = build_of(campaign)
    begin = time.monotonic()
    done = subprocess.run(
        ["ctest", "--test-dir", build, "-R", campaign.tests, "-V",
         "--no-tests=error", "-j", "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OCTAVO_SEED": str(seed), **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    log.write_text(done.stdout)
    if NOT_THERE.search(done.stdout):
        sys.exit(f"error: {campaign.name}: expected built tests that match {campaign.tests} in {build}, found none or not "
                 f"all; build that preset, as bash tests/run.sh soak does, see {log}")
    cases = campaign.cases or sum(int(n) for n in EXECUTED.findall(done.stdout))
    result = "passed" if done.returncode == 0 and "(Skipped)" not in done.stdout else "failed"
    return Round(campaign.name, seed, cases, round(time.monotonic() - begin), result, commit)


def soak(options):
    campaigns = [c for c in CAMPAIGNS if not options.only or c.name in options.only]
    if len(campaigns) < len(set(options.only or ())):
        sys.exit(f"error: --only: expected one of {', '.join(c.name for c in CAMPAIGNS)}, found {', '.join(options.only)}")
    for campaign in [c for c in campaigns if c.preset == "cpu-aarch64" and not build_of(c).is_dir()]:
        print(f"{campaign.name}: skipped, there is no {build_of(campaign)}; bash tests/run.sh cpu-aarch64 says what it lacks")
        campaigns.remove(campaign)
    if not campaigns:
        return 77
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], check=True,
                            capture_output=True, text=True).stdout.strip()
    end = time.monotonic() + 3600 * options.hours
    failed = []
    while True:
        rounds = read_rounds(options.ledger.read_text())
        campaign = next_campaign(campaigns, rounds)
        done = run(campaign, options.seed or next_seed(campaign, rounds), commit)
        print(done, flush=True)
        put(options.ledger, ledger_of(rounds + [done]))
        page = options.ledger.with_suffix(".md")
        put(page, written(page.read_text(), rounds + [done]))
        if done.result != "passed":
            failed.append(done)
        if time.monotonic() >= end or options.seed:
            break
    for r in failed:
        print(f"error: {r.campaign} failed with seed {r.seed}: see out/soak/{r.campaign}-{r.seed}.log; repeat with "
              f"python3 tests/soak.py --only {r.campaign} --seed {r.seed}", file=sys.stderr)
    return 1 if failed else 0


def self_test():
    a, b = CAMPAIGNS[0], CAMPAIGNS[1]
    assert next_campaign([a, b], []) is a and next_seed(a, []) == 1
    rounds = [Round(a.name, 1, 7, 60, "passed", "abc"), Round(b.name, 4, 2, 20, "failed", "abc")]
    assert read_rounds(ledger_of(rounds)) == rounds
    page = written(f"# Soak\n\n{SUMMARY}\n", rounds)
    assert written(page, rounds) == page, page
    assert written(LEDGER.with_suffix(".md").read_text(), read_rounds(LEDGER.read_text())) == \
        LEDGER.with_suffix(".md").read_text(), "expected soak.md to have the sums of soak.csv"
    assert next_campaign([a, b], rounds) is b and next_seed(b, rounds) == 5
    assert f"So far: 2 rounds of 2 campaigns, 9 cases in 0.0 hours. Failed rounds: 1 of `{b.name}`." in page, page
    print("soak: the ledger reads what it writes")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--only", action="append", help="this campaign; may be repeated")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    parser.add_argument("--ledger", type=pathlib.Path, default=LEDGER)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if options.list:
        for campaign in CAMPAIGNS:
            print(f"{campaign.name:14} {campaign.preset:11} {campaign.what}")
        return 0
    return soak(options)


if __name__ == "__main__":
    sys.exit(main())
