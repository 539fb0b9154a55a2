"""What each rank of sharded_trainer_test.py runs: the Trainer of transformers and TRL's SFTTrainer, with --fsdp and
without."""
import contextlib

import transformers
from torch.distributed.fsdp import FSDPModule

import octavo
import tiny_gpt
from conftest import msamp, te
from fsdp_parts import plain
from octavo.transformers import OctavoCallback
from torchrun import sample, sharding_on_cpus

STEPS, SAVED, ROWS, LAYERS = 4, 2, 4, 15
FSDP = {"fsdp": True, "fsdp_config": {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}
KINDS = ("SHARDED_STATE_DICT", "FULL_STATE_DICT")


def llama():
    transformers.set_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=tiny_gpt.VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None,
        eos_token_id=None, pad_token_id=None))


def texts():
    return tiny_gpt.text(STEPS * 2 * ROWS)


def settings(**options):
    return {"max_steps": STEPS, "per_device_train_batch_size": ROWS, "learning_rate": 3e-3, "logging_steps": 1,
            "save_steps": SAVED, "max_grad_norm": 0.0, "use_cpu": True, "report_to": [], "disable_tqdm": True, **options}


def trainer(folder, overrides=te("delayed"), gather=None, **options):
    data = [{"input_ids": t, "labels": t} for t in texts()]
    return transformers.Trainer(
        llama(), transformers.TrainingArguments(str(folder), **settings(**options)), train_dataset=data,
        callbacks=[OctavoCallback(overrides=overrides, fsdp_gather=gather)])


def outcome(t):
    losses = [entry["loss"] for entry in t.state.log_history if "loss" in entry]
    return {"losses": losses, "weights": {n: plain(p) for n, p in t.model.named_parameters()},
            "octavo": octavo.state_dict(t.model), "report": octavo.report(t.model),
            "is sharded": isinstance(t.model, FSDPModule)}


def trained(t, checkpoint=None):
    t.train(resume_from_checkpoint=checkpoint)
    return outcome(t)


def sharded(folder, kind, gather=None):
    """(a run, the same one resumed at step SAVED, the files of its checkpoint)"""
    options = {**FSDP, "fsdp_config": {**FSDP["fsdp_config"], "state_dict_type": kind}}
    whole = trained(trainer(folder, gather=gather, **options))
    saved = folder / f"checkpoint-{SAVED}"
    return (whole, trained(trainer(folder, gather=gather, **options), str(saved)),
            sorted(p.name for p in saved.iterdir()))


def refused(folder):
    try:
        trainer(folder, msamp("O2"), **FSDP).train()
    except octavo.OctavoError as e:
        return type(e).__name__, str(e)
    return None


def run(folder):
    found = {"ddp": trained(trainer(folder / "ddp", save_strategy="no"))}
    with sharding_on_cpus():
        found.update({kind: sharded(folder / kind, kind, "fp8" if kind.startswith("FULL") else None) for kind in KINDS})
        found["sample"] = sample("sharded_trainer", folder)
        found["refused"] = refused(folder / "refused")
    return found


def tokenizer():
    import tokenizers
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(
        {f"w{i}": i for i in range(tiny_gpt.VOCABULARY)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>")


def sft(folder, gather=None, skip="lm_head", **options):
    """TRL's loss multiplies by lm_head.weight without the layer."""
    import datasets
    import trl
    words = [" ".join(f"w{i}" for i in line) for line in texts().tolist()]
    model, tokens = llama(), tokenizer()
    model.resize_token_embeddings(len(tokens) + len(tokens) % 2)  # rows of lm_head divide by 2 ranks
    arguments = trl.SFTConfig(str(folder), bf16=False, **settings(**options))
    return trl.SFTTrainer(model, args=arguments, train_dataset=datasets.Dataset.from_dict({"text": words}),
                          processing_class=tokens,
                          callbacks=[OctavoCallback(overrides={**te("delayed"), "layers.skip": skip}, fsdp_gather=gather)])


def sft_error(folder):
    try:
        sft(folder, "fp8", "", save_strategy="no", **FSDP).train()
    except octavo.OctavoError as e:
        return type(e).__name__, str(e)
    return None


def run_sft(folder):
    with contextlib.ExitStack() as stack:
        found = {"ddp": trained(sft(folder / "ddp", skip="", save_strategy="no"))}
        stack.enter_context(sharding_on_cpus())
        options = {**FSDP, "fsdp_config": {**FSDP["fsdp_config"], "state_dict_type": KINDS[0]}}
        found["fsdp"] = trained(sft(folder / "fsdp", "fp8", **options))
        found["resumed"] = trained(sft(folder / "fsdp", "fp8", **options), str(folder / "fsdp" / f"checkpoint-{SAVED}"))
        found["sample"] = sample("sharded_sft", folder)
        found["error"] = sft_error(folder / "error")
    return found


