#!/usr/bin/env python3
"""The packages of ecosystem.txt work here: each is imported and trains something tiny on the CPU.

Usage: ecosystem_test.py     (with the environment's Python; nothing is downloaded)

Proves the environment, not Octavo: where this fails, tests of the Python adapter fail, too. Every
part trains for a few steps and expects the loss or the weights to have changed as they should. It
takes half a minute, most of it for imports.
"""

import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import accelerate  # noqa: E402
import bitsandbytes  # noqa: E402
import lightning  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

IDS = torch.arange(32).reshape(2, 16) % 29


def tiny_gpt2():
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return transformers.GPT2LMHeadModel(config)


def train(model, optimizer, backward, steps=3):
    losses = []
    for _ in range(steps):
        loss = model(input_ids=IDS, labels=IDS).loss
        backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0], f"expected a falling loss, found {losses}"
    return losses


def check_accelerate():
    accelerator = accelerate.Accelerator(mixed_precision="bf16", cpu=True)
    model = tiny_gpt2()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    return train(model, optimizer, accelerator.backward)


def check_bitsandbytes():
    model = tiny_gpt2()
    optimizer = bitsandbytes.optim.Adam8bit(model.parameters(), lr=1e-2, min_8bit_size=64)
    losses = train(model, optimizer, lambda loss: loss.backward())
    state = optimizer.state[model.transformer.h[0].mlp.c_fc.weight]
    assert state["state1"].dtype == torch.uint8, f"expected 8-bit moments, found {state['state1']}"
    return losses


def check_peft():
    config = peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    model = peft.get_peft_model(tiny_gpt2(), config)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert 0 < len(trained) < len(list(model.parameters()))
    return train(model, torch.optim.AdamW(trained, lr=1e-2), lambda loss: loss.backward())


def check_trainer():
    data = [{"input_ids": row, "labels": row} for row in IDS]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, max_steps=2, per_device_train_batch_size=2, use_cpu=True, bf16=True,
            report_to=[], save_strategy="no", disable_tqdm=True, learning_rate=1e-2)
        model = tiny_gpt2()
        before = model.lm_head.weight.detach().clone()
        result = transformers.Trainer(model=model, args=arguments, train_dataset=data).train()
        assert result.global_step == 2, result
        assert not torch.equal(before, model.lm_head.weight), "the weights did not change"
    return [result.training_loss]


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = tiny_gpt2()
        self.losses = []

    def training_step(self, batch, _index):
        loss = self.model(input_ids=batch, labels=batch).loss
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def check_lightning():
    module = Module()
    loader = torch.utils.data.DataLoader(IDS, batch_size=2)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cpu", precision="bf16-mixed", max_epochs=3, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=folder)
        trainer.fit(module, loader)
    assert module.losses[-1] < module.losses[0], module.losses
    return module.losses


def check_other_architectures():
    """Models that the adapter's tests train: they exist and run without optional packages."""
    text = dict(vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                num_attention_heads=2)
    losses = []
    for name, config in (
            ("LlamaForCausalLM", transformers.LlamaConfig(num_key_value_heads=2, **text)),
            ("BertForMaskedLM", transformers.BertConfig(**text)),
            ("MixtralForCausalLM",
             transformers.MixtralConfig(num_key_value_heads=2, num_local_experts=4, **text))):
        loss = getattr(transformers, name)(config)(input_ids=IDS, labels=IDS).loss
        loss.backward()
        losses.append(loss.item())
    config = transformers.ViTConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        image_size=16, patch_size=4)
    model = transformers.ViTForImageClassification(config)
    loss = model(pixel_values=torch.randn(2, 3, 16, 16), labels=torch.tensor([0, 1])).loss
    loss.backward()
    return losses + [loss.item()]


def check_inductor():
    """Needs a C++ compiler and Python.h (Debian: python3-dev)."""
    linear = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)
    found = torch.compile(lambda x: torch.nn.functional.gelu(linear(x)).sum(), fullgraph=True)(x)
    torch.testing.assert_close(found, torch.nn.functional.gelu(linear(x)).sum())
    return [found.item()]


def main():
    torch.set_num_threads(1)
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            losses = check()
            print(f"{name[6:]}: {' '.join(f'{loss:.4f}' for loss in losses)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
