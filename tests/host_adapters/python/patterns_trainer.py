"""Usage patterns: the Trainer of transformers, with a small Llama."""
import pathlib
import sys
import tempfile

import peft
import torch
import transformers

from octavo.transformers import OctavoCallback
from patterns import PLAIN, boundaries, follows, is_prepared, pattern

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "samples" / "python"))
import tiny_gpt  # noqa: E402  after the path

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
AREA = "The Trainer of transformers"
STEPS, ROWS = 10, 8
# How far a loss may be from the plain one, relative to the first, ln(64) = 4.2: 0.06 nats. Logits
# spread by about 1 in these steps and pass 8 linears, whose casts err by 5.2 % * sqrt(8 / 2) = 10 %
# of that (patterns.BOUND). A mean over 256 tokens changes by half its square, 0.005, and by the
# correlation with the residual, 0.1 / sqrt(256) = 0.006; 10 steps add up to sqrt(10) * 0.008 =
# 0.03. The worst of 10 losses is at twice that.
NOISE = 0.015
FALLS = 0.95  # of the first loss at the end: at least 0.2 nats, three times NOISE


def is_cpu():
    return torch.get_default_device().type == "cpu"


def llama(is_tied=False):
    transformers.set_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=tiny_gpt.VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        tie_word_embeddings=is_tied, bos_token_id=None, eos_token_id=None, pad_token_id=None))


def trainer_of(prepare, folder, model=None, kind=transformers.Trainer, callback=True, rest=None,
               **settings):
    """A Trainer with OctavoCallback; without it for the plain twin."""
    data = [{"input_ids": t, "labels": t} for t in tiny_gpt.text(STEPS * ROWS).cpu()]
    arguments = transformers.TrainingArguments(folder, **{
        "max_steps": STEPS, "per_device_train_batch_size": ROWS, "learning_rate": 5e-3,
        "use_cpu": is_cpu(), "report_to": [], "disable_tqdm": True, "logging_steps": 1,
        "save_strategy": "no", "bf16": True, "lr_scheduler_type": "constant", **settings})
    callbacks = [OctavoCallback(overrides=prepare.overrides)] * bool(prepare.overrides and callback)
    return kind(model or llama(), arguments, train_dataset=data, eval_dataset=data[:ROWS],
                callbacks=callbacks, **(rest or {}))


def logged(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def run(prepare, steps=STEPS, **settings):
    """The losses of one training. Asserts one boundary a step."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(prepare, folder, **settings)
        before = boundaries(trainer.model)
        trainer.train()
        if is_prepared(trainer.model):
            assert boundaries(trainer.model) - before == steps
        return logged(trainer), trainer


_plain = {}  # settings -> the losses of the plain twin, the same for both backends


def compare(prepare, **settings):
    """Losses with these settings follow those of the plain twin."""
    key = repr(sorted(settings.items()))
    if key not in _plain:
        _plain[key] = run(PLAIN, **settings)[0]
    follows(run(prepare, **settings)[0], _plain[key], NOISE, FALLS)


RATES = {"sgd": 0.5, "adafactor": 1e-2, "rmsprop": 1e-3, "lion_8bit": 3e-3, "adagrad": 1e-2}


def optimizing(name):
    return lambda prepare: compare(prepare, optim=name, learning_rate=RATES.get(name, 5e-3))


for name in ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "rmsprop", "adagrad",
             "adamw_bnb_8bit", "lion_8bit"):
    pattern(AREA, f'optim="{name}"')(optimizing(name))


@pattern(AREA, "gradient accumulation and max_grad_norm")
def accumulated(prepare):
    compare(prepare, gradient_accumulation_steps=2, max_grad_norm=0.5,
            per_device_train_batch_size=ROWS // 2)


@pattern(AREA, "gradient_checkpointing=True")
def checkpointing(prepare):
    plain = run(prepare)[0]
    assert run(prepare, gradient_checkpointing=True)[0] == plain


@pattern(AREA, "fp16=True")
def fp16(prepare):
    compare(prepare, bf16=False, fp16=True)


@pattern(AREA, "full precision (neither bf16 nor fp16)")
def full(prepare):
    compare(prepare, bf16=False)


@pattern(AREA, "torch_compile=True")
def compiled(prepare):
    compare(prepare, torch_compile=True, torch_compile_backend="aot_eager")


@pattern(AREA, "a head tied to the embedding")
def tied(prepare):
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for p in (prepare, PLAIN):
            trainer = trainer_of(p, folder, llama(is_tied=True))
            trainer.train()
            runs.append(logged(trainer))
            assert trainer.model.lm_head.weight is trainer.model.model.embed_tokens.weight
        follows(*runs, NOISE, FALLS)


@pattern(AREA, "a subclass with compute_loss of its own")
def subclass(prepare):
    class Own(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            logits = model(input_ids=inputs["input_ids"]).logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(
                logits.float().flatten(0, 1), inputs["labels"][:, 1:].flatten(),
                label_smoothing=0.1)
            return (loss, logits) if return_outputs else loss
    compare(prepare, kind=Own)


@pattern(AREA, "your own optimizer and scheduler (optimizers=)")
def given(prepare):
    runs = []
    for p in (prepare, PLAIN):
        model = llama()
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 8))
        runs.append(run(p, model=model, rest={"optimizers": (optimizer, scheduler)})[0])
    follows(*runs, NOISE, FALLS)


@pattern(AREA, "PEFT: a LoRA model")
def lora(prepare):
    runs = []
    for p in (prepare, PLAIN):
        torch.manual_seed(5)
        model = peft.get_peft_model(llama(), peft.LoraConfig(
            r=8, target_modules="all-linear", init_lora_weights=False, modules_to_save=["lm_head"]))
        layer = model.get_base_model().model.layers[0].mlp.up_proj.base_layer
        base = layer.weight.detach().clone()
        losses, _ = run(p, model=model, learning_rate=1e-2)
        # as a write to msamp: half a unit in the last place of f16 with a scale
        found = layer.weight.detach()
        assert (found - base).abs().max() <= 2**-11 * base.abs().max()
        runs.append(losses)
    follows(*runs, NOISE, FALLS)


@pattern(AREA, "model_init instead of a model")
def model_init(prepare):
    with tempfile.TemporaryDirectory() as folder:
        data = [{"input_ids": t, "labels": t} for t in tiny_gpt.text(ROWS)]
        arguments = transformers.TrainingArguments(
            folder, max_steps=1, use_cpu=is_cpu(), report_to=[], disable_tqdm=True, save_strategy="no")
        trainer = transformers.Trainer(
            args=arguments, model_init=lambda: llama(), train_dataset=data,
            callbacks=[OctavoCallback(overrides=prepare.overrides)])
        trainer.train()
        assert boundaries(trainer.model) == 1


@pattern(AREA, "octavo.prepare(model) before the Trainer, without the callback")
def prepared_before(prepare):
    runs = []
    for p in (prepare, PLAIN):
        model, _ = p(llama())
        runs.append(run(p, model=model, callback=False)[0])
    follows(*runs, NOISE, FALLS)
