"""The samples' model and data: a small GPT on text that a random grammar writes.

Each token has four likely successors, and one token in ten is free: so the loss falls from
log(VOCABULARY) towards the entropy of this grammar, and never to 0.
"""
import argparse
import pathlib

import torch
from torch import nn
from torch.nn import functional as F

CONFIG = pathlib.Path(__file__).with_name("octavo.toml")
VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 64, 32, 64, 2, 2


def arguments():
    """--steps: optimizer steps; --folder: for a framework's files."""
    parser = argparse.ArgumentParser(description="Trains a tiny GPT on the CPU.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folder", default="tiny_gpt_out")
    return parser.parse_args()


def text(sequences, seed=0):
    """int64 [sequences, CONTEXT + 1]; the same grammar for every seed."""
    grammar = torch.Generator().manual_seed(1234)
    likely = torch.randint(0, VOCABULARY, (VOCABULARY, 4), generator=grammar)
    dice = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (sequences, CONTEXT + 1), generator=dice)
    choices = torch.randint(0, 4, tokens.shape, generator=dice)
    is_free = torch.rand(tokens.shape, generator=dice) < 0.1
    for t in range(1, CONTEXT + 1):
        next_one = likely[tokens[:, t - 1], choices[:, t]]
        tokens[:, t] = torch.where(is_free[:, t], tokens[:, t], next_one)
    return tokens


def batches(steps, rows=16, seed=0):
    """Yields int64 [rows, CONTEXT + 1] for each step."""
    yield from text(steps * rows, seed).split(rows)


class Block(nn.Module):
    """Attention and a feed-forward part, each after a LayerNorm."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    """forward(tokens [rows, CONTEXT + 1]) -> the mean loss of each next token, in nats."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        places = torch.arange(CONTEXT, device=tokens.device)
        x = self.tokens(tokens[:, :-1]) + self.positions(places)
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
