"""Classes of sentence-transformers: losses that compute embeddings twice, or of pairs."""
import torch
import transformers
from sentence_transformers import SentenceTransformer, losses
from sentence_transformers.models import Pooling, Transformer

from stranger import VOCABULARY, adamw, program, tail
from transformers_programs import SMALL


class Backbone(torch.nn.Module):
    """A BERT with random weights in the place of a Transformer from the hub."""

    def __init__(self):
        super().__init__()
        self.auto_model = transformers.BertModel(transformers.BertConfig(
            **{**SMALL, "pad_token_id": 0}, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))

    def forward(self, features, **arguments):
        features["token_embeddings"] = self.auto_model(
            input_ids=features["input_ids"], attention_mask=features["attention_mask"]).last_hidden_state
        return features


def made():
    return SentenceTransformer(modules=[Backbone(), Pooling(32, pooling_mode="mean")], device="cpu")


def pairs(run, steps, rows=16):
    """A sequence, and the same one with a quarter of its tokens drawn anew."""
    draw = torch.Generator().manual_seed(600 + run.seed)
    for _ in range(steps):
        one = torch.randint(1, VOCABULARY, (rows, 12), generator=draw)
        other = torch.where(torch.rand(one.shape, generator=draw) < 0.25,
                            torch.randint(1, VOCABULARY, one.shape, generator=draw), one)
        yield [{"input_ids": t, "attention_mask": torch.ones_like(t)} for t in (one, other)]


def _train(run, make_loss, steps=30, labels=None):
    model = made()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 2e-3))
    loss_of = make_loss(model)
    found = []
    for both in pairs(run, steps):
        loss = loss_of(both, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    model.eval()
    (one, other), = pairs(run, 1, 64)
    with torch.no_grad():
        a, b = (model(f)["sentence_embedding"] for f in (one, other))
    scores = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=2)
    return {"loss": tail(found), "valid": torch.nn.functional.cross_entropy(20 * scores, torch.arange(64))}


@program("MultipleNegativesRankingLoss", apart=0.316)
def ranking(run):
    return _train(run, losses.MultipleNegativesRankingLoss)


@program("CachedMultipleNegativesRankingLoss (GradCache)", apart=0.316,
         counts="Embeddings are computed without gradients, then with them.")
def cached(run):
    return _train(run, lambda model: losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=4))


@program("CachedMultipleNegativesSymmetricRankingLoss", apart=0.273,
         counts="Embeddings are computed without gradients, then with them.")
def symmetric(run):
    return _train(run, lambda model: losses.CachedMultipleNegativesSymmetricRankingLoss(model, mini_batch_size=4))


@program("MatryoshkaLoss", apart=0.126)
def matryoshka(run):
    return _train(run, lambda m: losses.MatryoshkaLoss(m, losses.MultipleNegativesRankingLoss(m), [32, 16, 8]))


@program("ContrastiveTensionLoss: a second model as a deep copy", apart=0.087, counts="Two models.", moves="Two models.",
         arms=("delayed", "current"))
def tension(run):
    model = made()
    loss_of = losses.ContrastiveTensionLoss(model)
    loss_of, optimizer = run.prepare(loss_of, adamw(loss_of.parameters(), 1e-3))
    found = []
    labels = (torch.arange(16) % 2).float()
    for one, other in pairs(run, 20):
        other = {k: torch.where(labels[:, None].bool(), v, v.roll(1, 0)) for k, v in other.items()}
        loss = loss_of([one, other], labels) / 16
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return {"loss": tail(found)}
