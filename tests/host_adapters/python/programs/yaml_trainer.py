"""A program whose user writes YAML alone, as LLaMA-Factory and Axolotl have it. It knows nothing of Octavo."""
import json
import os
import sys

import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed


def main():
    command, path = sys.argv[1:]
    assert command == "train"
    with open(path, encoding="utf-8") as file:
        settings = yaml.safe_load(file)
    if settings.pop("fp8", False):
        os.environ["ACCELERATE_MIXED_PRECISION"] = "fp8"
    set_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=None))
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (1, 32)).repeat(96, 1)]
    arguments = TrainingArguments(**settings, report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=1)
    trainer = Trainer(model, arguments, train_dataset=data)
    trainer.train()
    trainer.save_state()
    with open(os.path.join(settings["output_dir"], "history.json"), "w", encoding="utf-8") as file:
        json.dump(trainer.state.log_history, file)


if __name__ == "__main__":
    main()
