"""Usage patterns: changes of a model before and after octavo.prepare."""
import torch
from torch import nn

from conftest import session
from guide_parts import mlp
from patterns import PLAIN, adamw, batch, compare, learn, network, pattern, start

AREA = "Changes of the model"


class Tied(nn.Module):
    """Two linears, in the middle of others, that may share one weight."""

    def __init__(self, is_tied=True):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.a, self.b = nn.Linear(32, 48), nn.Linear(48, 48), nn.Linear(48, 48)
        self.last = nn.Linear(48, 16)
        if is_tied:
            self.b.weight = self.a.weight

    def forward(self, x):
        h = torch.relu(self.first(x))
        return self.last(torch.relu(self.b(torch.relu(self.a(h)))) + h)


@pattern(AREA, "two linears that share a weight")
def tied(prepare):
    def loop(p):
        model, optimizer = start(p, Tied())
        losses = learn(model, optimizer)
        assert model.a.weight is model.b.weight
        return losses
    compare(prepare, loop)


class Language(nn.Module):
    """An embedding, a linear, and a head that may be tied to the embedding."""

    def __init__(self, is_tied):
        super().__init__()
        torch.manual_seed(3)
        self.tokens, self.body = nn.Embedding(48, 32), nn.Linear(32, 32)
        self.head = nn.Linear(32, 48, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.1)  # of the size of the head, which scales fit
        if is_tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        return self.head(torch.relu(self.body(self.tokens(tokens))))


def next_token(model):
    tokens = torch.arange(64) % 48
    return nn.functional.cross_entropy(model(tokens), (tokens * 7 + 1) % 48)


@pattern(AREA, "a head tied to the embedding")
def tied_head(prepare):
    def loop(p):
        model, optimizer = start(p, Language(True))
        losses = learn(model, optimizer, loss_of=next_token)
        assert torch.equal(model.head.weight, model.tokens.weight)
        return losses
    compare(prepare, loop)


@pattern(AREA, "the head tied to the embedding after octavo.prepare")
def tied_later(prepare):
    def loop(p):
        model, optimizer = start(p, Language(False))
        learn(model, optimizer, 1, loss_of=next_token)
        model.head.weight = model.tokens.weight
        losses = learn(model, optimizer, loss_of=next_token)
        assert model.head.weight is model.tokens.weight
        return losses
    compare(prepare, loop)


@pattern(AREA, "a tied head untied after octavo.prepare, and prepared again")
def untied(prepare):
    def loop(p):
        model, optimizer = start(p, Language(True))
        learn(model, optimizer, 1, loss_of=next_token)
        model.head.weight = nn.Parameter(model.tokens.weight.detach().clone())
        model, optimizer = p.again(model, adamw(model))
        losses = learn(model, optimizer, loss_of=next_token)
        assert not torch.equal(model.head.weight, model.tokens.weight)
        return losses
    compare(prepare, loop)


@pattern(AREA, "layers frozen before octavo.prepare")
def frozen(prepare):
    def loop(p):
        model = network()
        model[0].requires_grad_(False)
        model, optimizer = start(p, model)
        before = model[0].weight.clone()
        losses = learn(model, optimizer)
        assert torch.equal(model[0].weight, before) and model[0].weight.grad is None
        return losses
    compare(prepare, loop)


@pattern(AREA, "layers frozen after octavo.prepare")
def frozen_later(prepare):
    def loop(p):
        model, optimizer = start(p)
        losses = learn(model, optimizer, 5)
        model[0].requires_grad_(False)
        optimizer.zero_grad()
        before = model[0].weight.detach().clone()
        losses += learn(model, optimizer, 15)
        assert torch.equal(model[0].weight, before)
        return losses
    compare(prepare, loop)


def unfreezing(prepares_again):
    def loop(p):
        model = network()
        model[0].requires_grad_(False)
        model, optimizer = start(p, model)
        losses = learn(model, optimizer, 5)
        before = model[0].weight.clone()
        model.requires_grad_(True)
        optimizer = adamw(model)
        if prepares_again:
            model, optimizer = p.again(model, optimizer)
        losses += learn(model, optimizer, 15)
        assert not torch.equal(model[0].weight, before)
        return losses
    return lambda prepare: compare(prepare, loop)


pattern(AREA, "layers unfrozen after octavo.prepare")(unfreezing(False))
pattern(AREA, "layers unfrozen, then octavo.prepare again")(unfreezing(True))


@pattern(AREA, "a layer replaced after octavo.prepare: the new one is plain")
def replaced(prepare):
    def loop(p):
        model, optimizer = start(p)
        learn(model, optimizer, 3)
        torch.manual_seed(7)
        model[2] = nn.Linear(64, 16)
        losses = learn(model, adamw(model))
        assert type(model[2]) is nn.Linear
        return losses
    compare(prepare, loop)


@pattern(AREA, "a layer added, then octavo.prepare again")
def added(prepare):
    def loop(p):
        model, optimizer = start(p)
        learn(model, optimizer, 3)
        model.append(nn.GELU()).append(nn.Linear(16, 16))
        model, optimizer = p.again(model, adamw(model))
        assert p is PLAIN or sorted(session(model).sites) == ["0", "2", "4"]
        return learn(model, optimizer)
    compare(prepare, loop)


@pattern(AREA, "a parameter replaced: layer.weight = nn.Parameter(...)")
def parameter_replaced(prepare):
    def loop(p):
        model, _ = start(p, optimizer=None)
        model[0].weight = nn.Parameter(0.5 * model[0].weight.detach().clone())
        before = model[0].weight.detach().clone()
        losses = learn(model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0))
        assert not torch.equal(model[0].weight, before)
        return losses
    compare(prepare, loop)


@pattern(AREA, "weights initialized again: model.apply(init)")
def initialized(prepare):
    def loop(p):
        model, optimizer = start(p)
        generator = torch.Generator().manual_seed(2)

        def init(module):
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)
        model.apply(init)
        return learn(model, optimizer)
    compare(prepare, loop)


@pattern(AREA, "some layers kept out with module_filter=")
def filtered(prepare):
    def loop(p):
        model, optimizer = start(p, module_filter=lambda module, name: name != "0")
        assert p is PLAIN or list(session(model).sites) == ["2"]
        return learn(model, optimizer)
    compare(prepare, loop)


@pattern(AREA, "a lazy linear, which has no size yet: it stays plain")
def lazy(prepare):
    def loop(p):
        torch.manual_seed(3)
        model, _ = start(p, nn.Sequential(nn.LazyLinear(64), nn.GELU(), nn.Linear(64, 16)), None)
        torch.manual_seed(4)
        model(batch()[0])
        assert p is PLAIN or list(session(model).sites) == ["2"]
        return learn(model, adamw(model))
    compare(prepare, loop)


@pattern(AREA, "a subclass of nn.Linear with a forward of its own")
def subclass(prepare):
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2.0 * super().forward(x)

    def loop(p):
        torch.manual_seed(3)
        model, optimizer = start(p, nn.Sequential(Scaled(32, 64), nn.GELU(), nn.Linear(64, 16)))
        return learn(model, optimizer)
    compare(prepare, loop)


@pattern(AREA, "a prepared model as a part of a larger one that is prepared")
def nested(prepare):
    part, _ = prepare(network(32, 64, 32))
    model, _ = prepare(nn.Sequential(part, mlp(32, 16)))
    assert model(batch()[0]).shape == (64, 16)


def replacing(prepares_again):
    def loop(p):
        model, optimizer = start(p)
        learn(model, optimizer, 3)
        torch.manual_seed(7)
        model[2] = nn.Linear(64, 16)
        if prepares_again:
            model, optimizer = p.again(model, adamw(model))
        else:
            optimizer = adamw(model)
        return learn(model, optimizer)
    return lambda prepare: compare(prepare, loop)


pattern(AREA, "a layer replaced after octavo.prepare: it runs in the dtype of torch")(
    replacing(False))
pattern(AREA, "a layer replaced, then octavo.prepare again")(replacing(True))
