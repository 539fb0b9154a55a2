"""Models of transformers with random weights, the data they learn, and what a run records.

The data are random draws, so that the loss has a floor above zero and the relative comparison has a
meaning. Each token has four successors, drawn with fixed probabilities; the best loss is the
entropy of these. Images carry one of eight classes, and labels are noisy.
"""
import math

import pytest
import torch

transformers = pytest.importorskip("transformers", minversion="5.0")

STEPS, BATCH, LENGTH, VOCABULARY = 200, 8, 16, 32
HIDDEN, LAYERS, HEADS, INNER, EXPERTS = 32, 2, 2, 64, 6
PROBABILITIES = (0.5, 0.25, 0.125, 0.125)
CHAIN_FLOOR = -sum(p * math.log(p) for p in PROBABILITIES)                       # 1.213 nats
CLASSES, NOISE = 8, 0.3
RIGHT, WRONG = 1 - NOISE + NOISE / CLASSES, NOISE / CLASSES
IMAGE_FLOOR = -(RIGHT * math.log(RIGHT) + (CLASSES - 1) * WRONG * math.log(WRONG))  # 1.086 nats


def successors():
    generator = torch.Generator().manual_seed(11)
    return torch.stack([torch.randperm(VOCABULARY, generator=generator)[:4]
                        for _ in range(VOCABULARY)])


def sequences(generator):
    table, probabilities = successors(), torch.tensor(PROBABILITIES)
    tokens = [torch.randint(0, VOCABULARY, (BATCH,), generator=generator)]
    choices = torch.multinomial(probabilities.expand(BATCH, 4), LENGTH, True, generator=generator)
    for t in range(1, LENGTH):
        tokens.append(table[tokens[-1], choices[:, t]])
    return torch.stack(tokens, 1)


def next_token(generator):
    tokens = sequences(generator)
    return dict(input_ids=tokens, labels=tokens)


def drawn_successor(generator):
    """Any tokens; each label is drawn from the successors of the token in its place."""
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    choices = torch.multinomial(torch.tensor(PROBABILITIES).expand(BATCH * LENGTH, 4), 1,
                                generator=generator).view(BATCH, LENGTH, 1)
    return dict(input_ids=tokens, labels=successors()[tokens].gather(2, choices).squeeze(2))


def images(generator):
    prototypes = torch.randn(CLASSES, 3, 16, 16, generator=torch.Generator().manual_seed(12))
    kind = torch.randint(0, CLASSES, (2 * BATCH,), generator=generator)
    other = torch.randint(0, CLASSES, (2 * BATCH,), generator=generator)
    noisy = torch.rand(2 * BATCH, generator=generator) < NOISE
    pixels = prototypes[kind] + 0.5 * torch.randn(2 * BATCH, 3, 16, 16, generator=generator)
    return dict(pixel_values=pixels, labels=torch.where(noisy, other, kind))


_TEXT = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
             num_attention_heads=HEADS, intermediate_size=INNER, max_position_embeddings=LENGTH,
             bos_token_id=0, eos_token_id=0, pad_token_id=None)


def gpt2():
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_positions=LENGTH,
        bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    # Its class's name does not tell the Trainer that the loss shifts the labels: the first one of
    # each row, which nothing predicts, would be counted.
    model.loss_type = "ForCausalLM"
    return model


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_TEXT, num_key_value_heads=1))


def bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(
        **_TEXT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def mixtral():
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(
        **_TEXT, num_key_value_heads=1, num_local_experts=EXPERTS, num_experts_per_tok=2))
    # A feature that all tokens share, which the router holds against the last expert.
    model.model.embed_tokens.weight.data[:, 0] = 0.05
    for layer in model.model.layers:
        layer.mlp.gate.weight.data.mul_(10)
        layer.mlp.gate.weight.data[-1, 0] = -3
    return model


def vit():
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=INNER, image_size=16, patch_size=8, num_labels=CLASSES,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


# model, data, floor of the loss, learning rate, FP8 linears in all, reasons of what stays outside
MODELS = {
    # attention in, attention out, two of the MLP; the head, tied to the embedding
    "gpt2": (gpt2, next_token, CHAIN_FLOOR, 3e-3, 4 * LAYERS + 1, {}),
    # q, k, v, o, gate, up, down; the head
    "llama": (llama, next_token, CHAIN_FLOOR, 3e-3, 7 * LAYERS + 1, {}),
    # q, k, v, o, two of the MLP; the head's dense layer and its decoder, tied to the embedding
    "bert": (bert, drawn_successor, CHAIN_FLOOR, 3e-3, 6 * LAYERS + 2, {}),
    # q, k, v, o, two products an expert; the head. The router is a module of its own kind
    "mixtral": (mixtral, next_token, CHAIN_FLOOR, 3e-3, (4 + 2 * EXPERTS) * LAYERS + 1,
                {f"model.layers.{i}.mlp.gate": "MixtralTopKRouter is not a linear layer (weight)"
                 for i in range(LAYERS)}),
    # q, k, v, o, two of the MLP; the classifier. Patches are embedded by a convolution
    "vit": (vit, images, IMAGE_FLOOR, 1e-3, 6 * LAYERS + 1, {})}


def made(name):
    """(model, optimizer), the same at every call, and the Record of its calls."""
    make, _, _, lr, *_ = MODELS[name]
    torch.manual_seed(0)
    model = make()
    return model, torch.optim.AdamW(model.parameters(), lr=lr), Record(model)


def loader(name):
    """STEPS batches, the same at every call."""
    data = MODELS[name][1]
    generator, examples = torch.Generator().manual_seed(1), []
    for _ in range(STEPS):
        batch = data(generator)
        rows = len(batch["labels"])
        examples += [{key: value[i] for key, value in batch.items()} for i in range(rows)]
    return torch.utils.data.DataLoader(examples, batch_size=rows)


class Record:
    """The loss of every call of the model, and the tokens of each expert at every call of one."""

    def __init__(self, model):
        self.losses, self.counts = [], []
        model.register_forward_hook(self._loss)
        for module in model.modules():
            if type(module).__name__ == "MixtralExperts":
                module.register_forward_pre_hook(self._count)

    def _loss(self, module, arguments, output):
        self.losses.append(output.loss.item())

    def _count(self, module, arguments):
        self.counts.append(torch.bincount(arguments[1].flatten(), minlength=EXPERTS).tolist())

    def final(self):
        """The mean loss of the last 20 steps."""
        return sum(self.losses[-20:]) / 20
