"""Adapters of PEFT on models of transformers: training, merging, switching."""
import peft
import torch

from stranger import VOCABULARY, adamw, language, program, sentences
from transformers_programs import llama

TE = ("delayed", "current", "block")
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def base():
    """With weights so large that the layers which adapters change decide what comes out."""
    return llama(initializer_range=0.15)


def trainable(model, lr=1e-2):
    return adamw([p for p in model.parameters() if p.requires_grad], lr)


@torch.no_grad()
def loss_of(model, run):
    (tokens,), was = list(sentences(run, 1, 64)), model.training
    loss = model.eval()(input_ids=tokens, labels=tokens).loss
    model.train(was)
    return loss


def _adapter(run, config, steps=40, then=None, **arguments):
    torch.manual_seed(run.seed)
    model = peft.get_peft_model(base(), config)
    model, optimizer = run.prepare(model, trainable(model, **arguments))
    out = {"loss": language(model, optimizer, run, steps), "valid": loss_of(model, run)}
    if then is not None:
        out.update(then(model, run))
    return out


def _merged(model, run):
    merged = model.merge_and_unload()
    return {"merged": loss_of(merged, run)}


def _again(model, run):
    """The merged model trains on, in full."""
    merged = model.merge_and_unload()
    for p in merged.parameters():
        p.requires_grad_(True)
    if run.arm is not None:
        import octavo
        octavo.prepare(merged, overrides=run.overrides)
    return {"merged": loss_of(merged, run), "on": language(merged, adamw(merged.parameters(), 3e-3), run, 20)}


@program("LoRA, merge_and_unload", apart=0.054)
def lora(run):
    return _adapter(run, peft.LoraConfig(r=16, lora_alpha=32, target_modules=LINEARS, init_lora_weights="gaussian"), then=_merged)


@program("LoRA, merge_and_unload, then full training of the merged model", apart=0.049, arms=TE,
         moves="The model is another one.", counts="The model is another one.")
def lora_on(run):
    return _adapter(run, peft.LoraConfig(r=16, lora_alpha=32, target_modules=LINEARS), then=_again)


@program("DoRA, merged and unmerged around validation", apart=0.027)
def dora(run):
    def then(model, run):
        model.merge_adapter()
        merged = loss_of(model, run)
        model.unmerge_adapter()
        return {"merged": merged, "unmerged": loss_of(model, run)}
    return _adapter(run, peft.LoraConfig(r=16, use_dora=True, target_modules=LINEARS), then=then)


@program("LoRA, merge_adapter in training mode, trained on, unmerged (ReLoRA)", apart=0.039, arms=TE, moves="Merging moves the base.")
def relora(run):
    torch.manual_seed(run.seed)
    model = peft.get_peft_model(base(), peft.LoraConfig(r=16, lora_alpha=32, target_modules=LINEARS))
    model, _ = run.prepare(model)
    out = {}
    for cycle in range(3):
        out[f"loss {cycle}"] = language(model, trainable(model), run, 20)
        for module in model.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                delta = module.get_delta_weight("default")
                module.get_base_layer().weight.data += delta
                torch.nn.init.zeros_(module.lora_B["default"].weight)
    return {**out, "valid": loss_of(model, run)}


@program("IA3", apart=0.028, arms=("delayed", "current"))
def ia3(run):
    return _adapter(run, peft.IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]),
                    then=_merged)


@program("LoHa", apart=0.054, arms=("delayed", "current"))
def loha(run):
    return _adapter(run, peft.LoHaConfig(r=4, target_modules=["q_proj", "up_proj"]), then=_merged)


@program("OFT", apart=0.048, arms=("delayed", "current"))
def oft(run):
    return _adapter(run, peft.OFTConfig(r=0, oft_block_size=16, target_modules=["q_proj", "up_proj"]), then=_merged)


@program("VeRA", apart=0.023, arms=("delayed", "current"))
def vera(run):
    return _adapter(run, peft.VeraConfig(r=16, target_modules=["q_proj", "up_proj"], projection_prng_key=0), then=_merged)


@program("BOFT", apart=0.044, arms=("delayed", "current"))
def boft(run):
    return _adapter(run, peft.BOFTConfig(boft_block_size=16, target_modules=["q_proj", "up_proj"]), then=_merged)


@program("FourierFT", apart=0.030, arms=("delayed", "current"))
def fourier(run):
    return _adapter(run, peft.FourierFTConfig(n_frequency=64, target_modules=["q_proj", "up_proj"]), then=_merged)


@program("prompt tuning", apart=0.010, arms=("delayed", "current"))
def prompts(run):
    return _adapter(run, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))


@program("LN tuning", apart=0.012, arms=("delayed", "current"))
def norms(run):
    return _adapter(run, peft.LNTuningConfig(task_type="CAUSAL_LM", target_modules=["input_layernorm"]))


@program("trainable tokens", apart=0.019, arms=("delayed", "current"))
def tokens(run):
    return _adapter(run, peft.TrainableTokensConfig(token_indices=list(range(8)), target_modules=["embed_tokens"]))


@program("two adapters, switched, weighted, one deleted", apart=0.055, arms=("delayed", "current", "msamp"))
def two(run):
    torch.manual_seed(run.seed)
    config = peft.LoraConfig(r=16, lora_alpha=32, target_modules=LINEARS, init_lora_weights="gaussian")
    model = peft.get_peft_model(base(), config)
    model.add_adapter("other", config)
    model.set_adapter("default")
    for name, p in model.named_parameters():
        p.requires_grad_("lora_" in name)
    model, optimizer = run.prepare(model, trainable(model))
    out = {"default": language(model, optimizer, run, 30)}
    model.base_model.set_adapter("other")
    for name, p in model.named_parameters():
        p.requires_grad_("lora_" in name)
    out["other"] = language(model, optimizer, run, 30)
    model.base_model.set_adapter("default")
    out["valid"] = loss_of(model, run)
    return out
