"""transformers' Trainer, with a Llama model."""
import pathlib
import sys

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
        arguments.folder, max_steps=arguments.steps, per_device_train_batch_size=16, bf16=True,
        use_cpu=True, learning_rate=3e-3, logging_steps=20, report_to=[], disable_tqdm=True)
    trainer = Trainer(
        model, settings, train_dataset=data,
    )
    trainer.train()
    print(f"loss {trainer.state.log_history[-1]['train_loss']:.4f}")


if __name__ == "__main__":
    main()
