"""TRL's SFTTrainer with FSDP2: torchrun --nproc-per-node 2 sharded_sft.py

It shards only on GPUs. On CPUs it averages gradients instead.
"""
import pathlib
import sys

import datasets
import tokenizers
import torch
from octavo.transformers import OctavoCallback, report
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same text
import tiny_gpt

WORDS = [f"w{i}" for i in range(tiny_gpt.VOCABULARY)]


def tokenizer():
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>")


def main():
    arguments = tiny_gpt.arguments()
    set_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=tiny_gpt.VOCABULARY + 2, hidden_size=64, intermediate_size=192, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64))
    texts = [" ".join(WORDS[i] for i in line) for line in tiny_gpt.text(arguments.steps * 16).tolist()]
    settings = SFTConfig(
        arguments.folder, max_steps=arguments.steps, per_device_train_batch_size=8, bf16=True, fsdp=True,
        fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
                     "state_dict_type": "SHARDED_STATE_DICT"},
        use_cpu=not torch.cuda.is_available(), learning_rate=3e-3, logging_steps=20, report_to=[], disable_tqdm=True)
    trainer = SFTTrainer(
        model, args=settings, train_dataset=datasets.Dataset.from_dict({"text": texts}),
        processing_class=tokenizer(),
        callbacks=[OctavoCallback(tiny_gpt.CONFIG, fsdp_gather="fp8")],
    )
    trainer.train()
    print(report(model))
    print(f"loss {trainer.state.log_history[-1]['train_loss']:.4f}")


if __name__ == "__main__":
    main()
