"""transformers' Trainer with FSDP2: torchrun --nproc-per-node 2 sharded_trainer.py

It shards only on GPUs. On CPUs it averages gradients instead.
"""
import pathlib
import sys

import torch
from octavo.transformers import OctavoCallback, report
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same text
import tiny_gpt


def main():
    arguments = tiny_gpt.arguments()
    set_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=tiny_gpt.VOCABULARY, hidden_size=64, intermediate_size=192, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=None, eos_token_id=None, pad_token_id=None))
    data = [{"input_ids": t, "labels": t} for t in tiny_gpt.text(arguments.steps * 16)]
    settings = TrainingArguments(
        arguments.folder, max_steps=arguments.steps, per_device_train_batch_size=8, bf16=True, fsdp=True,
        fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
                     "state_dict_type": "SHARDED_STATE_DICT"},
        use_cpu=not torch.cuda.is_available(), learning_rate=3e-3, logging_steps=20, report_to=[], disable_tqdm=True)
    trainer = Trainer(
        model, settings, train_dataset=data,
        callbacks=[OctavoCallback(tiny_gpt.CONFIG, fsdp_gather="fp8")],
    )
    trainer.train()
    print(report(model))
    print(f"loss {trainer.state.log_history[-1]['train_loss']:.4f}")


if __name__ == "__main__":
    main()
