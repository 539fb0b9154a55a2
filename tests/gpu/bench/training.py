"""G13: one GPT, trained in bf16 and in FP8 with everything else equal.

All runs have bf16 autocast, fused AdamW, the same batches and, but for the second seed, the same first
weights. They differ in octavo.prepare alone. A result counts when the losses of bf16 and FP8 are no
further apart than those of two seeds in bf16.
"""
import contextlib
import dataclasses
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

import transformer_engine_side
from results import NotMeasured, Result

LAST = 10  # steps whose losses are compared


@dataclasses.dataclass(frozen=True)
class Size:
    width: int
    layers: int
    heads: int
    context: int
    batch: int
    steps: int
    vocabulary: int = 256


FULL = Size(width=2048, layers=24, heads=16, context=1024, batch=8, steps=60)  # 1.2 billion parameters
SMALL = Size(width=64, layers=1, heads=2, context=16, batch=4, steps=12)
# Timed only, in as many steps as a median needs.
OTHERS = {"te current": {"fp8.backend": "te", "fp8.te.recipe": "current"},
          "te block": {"fp8.backend": "te", "fp8.te.recipe": "block"},
          "te rowwise": {"fp8.backend": "te", "fp8.te.recipe": "rowwise"},
          "msamp O2": {"fp8.backend": "msamp", "fp8.msamp.opt_level": "O2"}}
OTHERS_STEPS = 12


@dataclasses.dataclass
class Run:
    """What one training gave, and how: `how` must be equal in runs that are compared."""
    how: dict
    seconds: float  # of a step, median
    losses: list
    report: str = ""
    peak_gib: float = 0.0  # of the device's memory

    def loss(self):
        return sum(self.losses[-LAST:]) / len(self.losses[-LAST:])


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.heads = size.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.up, self.down = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, size.vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def batches(size, device):
    """Text of a random grammar: each token has four likely successors. The same for every run."""
    dice = torch.Generator().manual_seed(0)
    likely = torch.randint(0, size.vocabulary, (size.vocabulary, 4), generator=dice)
    for _ in range(size.steps):
        shape = (size.batch, size.context + 1)
        tokens = torch.randint(0, size.vocabulary, shape, generator=dice)
        choices, free = torch.randint(0, 4, shape, generator=dice), torch.rand(shape, generator=dice) < 0.1
        for t in range(1, shape[1]):
            tokens[:, t] = torch.where(free[:, t], tokens[:, t], likely[tokens[:, t - 1], choices[:, t]])
        yield tokens.to(device)


def train(size, device, seed, prepare, around=contextlib.nullcontext):
    """One run; `prepare` takes and gives a model and its optimizer, `around` surrounds a forward."""
    torch.manual_seed(seed)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with torch.device(device):  # a CPU takes longer to make these weights than a GPU to train them
        model = Gpt(size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    model, optimizer, report = prepare(model, optimizer)
    times, losses = [], []
    for tokens in batches(size, device):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16), around():
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())  # waits for the device
        times.append(time.perf_counter() - start)
    how = {**dataclasses.asdict(size), "autocast": "bfloat16", "optimizer": "AdamW, fused", "device": device}
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    return Run(how, statistics.median(times[len(times) // 3:]), losses, report, peak)


def plain(model, optimizer):
    return model, optimizer, ""


def with_octavo(**config):
    def prepare(model, optimizer):
        import octavo
        as_measured = {"layers.skip": [], "fp8.te.amax_history_len": 1024}  # docs/results/cuda.md
        model, optimizer = octavo.prepare(model, optimizer, overrides={**as_measured, **config})
        return model, optimizer, str(octavo.report(model))
    return prepare


def with_te(side):
    def prepare(model, optimizer):
        del optimizer
        for block in model.blocks:
            for name in ("qkv", "out", "up", "down"):
                old = getattr(block, name)
                # In the type that the other runs train: bf16 would spare the optimizer half of its traffic.
                new = side.linear(old.out_features, old.in_features, dtype=old.weight.dtype)
                with torch.no_grad():
                    new.weight.copy_(old.weight)
                    new.bias.copy_(old.bias)
                setattr(block, name, new)
        return model, torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True), ""
    return prepare


def judge(bf16, second, fp8):
    """The ratio of speeds, and what is wrong with it. Runs that are not alike are not compared."""
    if not bf16.how == second.how == fp8.how:
        raise ValueError(f"expected runs that differ in FP8 alone, found {bf16.how}, {second.how}, {fp8.how}")
    noise = abs(second.loss() - bf16.loss())
    apart = abs(fp8.loss() - bf16.loss())
    wrong = ""
    if not apart <= noise:  # NaN, too
        wrong = (f"the loss of FP8 is {fp8.loss():.4f}, {apart:.4f} from bf16's {bf16.loss():.4f}; two seeds "
                 f"are {noise:.4f} apart")
    elif not bf16.loss() < bf16.losses[0]:
        wrong = f"bf16 learned nothing: its loss went from {bf16.losses[0]:.4f} to {bf16.loss():.4f}"
    # Both runs in bf16, before and after the run in FP8: a clock that changed shows in none alone.
    seconds = (bf16.seconds + second.seconds) / 2
    return Result(seconds / fp8.seconds, [], wrong)


def measure(bench):
    try:
        import octavo
        octavo.version()
    except Exception as error:  # pylint: disable=broad-except -- no package, or no library of it
        raise NotMeasured(f"the package octavo is not at hand: {type(error).__name__}: {error}") from error
    size = bench.size(FULL, SMALL)
    bf16 = train(size, bench.device, 0, plain)
    fp8 = train(size, bench.device, 0, with_octavo(**{"fp8.backend": "te", "fp8.te.recipe": "delayed"}))
    second = train(size, bench.device, 1, plain)
    result = judge(bf16, second, fp8)
    tokens = size.batch * size.context
    runs = {"bf16": bf16, "bf16, second seed": second, "fp8": fp8}
    side, missing = transformer_engine_side.find(bench.device)
    if side:
        runs["te"] = train(size, bench.device, 0, with_te(side), side.fp8)
    few = dataclasses.replace(size, steps=OTHERS_STEPS)
    others = {name: train(few, bench.device, 0, with_octavo(**config)) for name, config in OTHERS.items()}
    result.details += [{"run": name, "tokens_per_s": tokens / run.seconds, "loss": run.loss(), "peak_gib": run.peak_gib,
                        "report": run.report} for name, run in runs.items()]
    result.details += [{"run": name, "tokens_per_s": tokens / run.seconds, "peak_gib": run.peak_gib}
                       for name, run in others.items()]
    result.details += [missing] if missing else []
    return result
