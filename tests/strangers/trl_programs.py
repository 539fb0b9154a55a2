"""Trainers of TRL, with their own classes and a tokenizer that is made here."""
import copy
import tempfile

import datasets
import tokenizers
import torch
import transformers
import trl

from octavo.transformers import OctavoCallback
from stranger import VOCABULARY, program, sentences, tail
from transformers_programs import llama

WORDS = {"<pad>": 0, "<eos>": 1, **{f"w{i}": i for i in range(2, VOCABULARY)}}
ARMS = ("delayed", "current")
COMMON = dict(use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", bf16=False, logging_steps=1,
              per_device_train_batch_size=8, learning_rate=5e-3, gradient_checkpointing=False)


def tokenizer():
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")


def texts(run, count):
    names = {i: w for w, i in WORDS.items()}
    return [" ".join(names[max(t, 2)] for t in row) for row in next(sentences(run, 1, count)).tolist()]


def _train(run, kind, config, data, steps, **arguments):
    model = llama(initializer_range=0.1)
    if kind is trl.DPOTrainer:
        arguments["ref_model"] = copy.deepcopy(model)
    run.watch(model)
    with tempfile.TemporaryDirectory() as folder:
        options = {**COMMON, **arguments.pop("args", {})}
        made = kind(model=model, args=config(output_dir=folder, max_steps=steps, seed=run.seed, **options),
                    train_dataset=data, processing_class=tokenizer(),
                    callbacks=[OctavoCallback(overrides=run.overrides)] if run.arm else [], **arguments)
        made.train()
        return [e["loss"] for e in made.state.log_history if "loss" in e], made


@program("SFTTrainer, packed", apart=0.031, arms=(*ARMS, "msamp"))
def sft(run):
    data = datasets.Dataset.from_dict({"text": texts(run, 160)})
    losses, _ = _train(run, trl.SFTTrainer, trl.SFTConfig, data, 20, args=dict(max_length=32, packing=True))
    return {"loss": tail(losses, 5)}


@program("DPOTrainer, the reference is a copy", apart=0.061, arms=(*ARMS, "msamp"))
def dpo(run):
    rows = texts(run, 96)
    data = datasets.Dataset.from_dict({"prompt": [" ".join(r.split()[:4]) for r in rows],
                                       "chosen": [" " + " ".join(r.split()[4:10]) for r in rows],
                                       "rejected": [" " + " ".join(r.split()[4:10][::-1]) for r in rows]})
    losses, _ = _train(run, trl.DPOTrainer, trl.DPOConfig, data, 16, args=dict(beta=0.2, max_length=24, learning_rate=1e-3))
    return {"loss": tail(losses, 5)}


@program("GRPOTrainer", apart=0.128, arms=ARMS, counts="Generation decides.", moves="Draws decide.")
def grpo(run):
    def reward(completions, **arguments):
        return [sum(w in ("w2", "w4", "w6", "w8", "w10") for w in c.split()) / 6 for c in completions]
    data = datasets.Dataset.from_dict({"prompt": [" ".join(t.split()[:4]) for t in texts(run, 64)]})
    _, made = _train(run, trl.GRPOTrainer, trl.GRPOConfig, data, 20, reward_funcs=reward,
                     args=dict(num_generations=8, max_completion_length=6, beta=0.0, learning_rate=1e-2))
    rewards = [e["reward"] for e in made.state.log_history if "reward" in e]
    return {"reward": tail(rewards, 5)}
