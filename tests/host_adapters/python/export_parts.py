"""A model of transformers, trained in FP8 and exported; also at the size of GPT-2, by hand:

    python tests/host_adapters/python/export_parts.py FOLDER [LAYOUT]
"""
import json
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import octavo
from octavo.torch.export import codes_of_model

TINY = {"vocab_size": 300, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "max_position_embeddings": 64}
GPT2 = {"vocab_size": 50257, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "num_key_value_heads": 12, "max_position_embeddings": 1024}


def tokens(size, rows, columns, seed):
    return torch.randint(0, size["vocab_size"], (rows, columns), generator=torch.Generator().manual_seed(seed))


def trained(options, size=None, steps=2, rows=2, columns=16):
    """(model, optimizer) after some steps on random tokens, with the head in the host's precision."""
    size = {**TINY, **(size or {})}
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = octavo.prepare(model, optimizer, overrides=options, module_filter=lambda _, name: name != "lm_head")
    for step in range(steps):
        train(model, optimizer, tokens(size, rows, columns, step))
    return model, optimizer


def train(model, optimizer, ids):
    optimizer.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    return loss.item()


def values(model):
    """{linear: its weight as codes times scales, float32}"""
    found, _ = codes_of_model(model, octavo.torch.session_of(model))
    return {name: each.values() for name, each in found.items()}


def plain_of(model, weights):
    """A model of transformers alone, with these weights in the place of its own."""
    plain = LlamaForCausalLM(model.config)
    state = {name: value for name, value in model.state_dict().items()}
    plain.load_state_dict({**state, **{f"{name}.weight": value for name, value in weights.items()}})
    return plain.eval()


def dense(codes, scale, block):
    """Codes times the scale of the tensor, of their row, or of their block."""
    scale = scale.float().reshape(1, 1) if scale.numel() == 1 else scale.float()
    for dim, size in enumerate(block or ()):
        scale = scale.repeat_interleave(size, dim).narrow(dim, 0, codes.shape[dim])
    return codes.float() * scale


def read(folder):
    """A reader of an export by the public rules of both formats: a plain model of transformers with codes times scales."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    fp8 = config.pop("quantization_config")
    if fp8["quant_method"] == "fp8":
        suffix, block = "weight_scale_inv", fp8["weight_block_size"]
    else:
        suffix, block = "weight_scale", fp8["config_groups"]["group_0"]["weights"].get("block_structure")
    found = load_file(pathlib.Path(folder) / "model.safetensors")
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in config.items() if k not in ("architectures", "dtype")}))
    state = {}
    for name, value in model.state_dict().items():
        scale = found.get(name.removesuffix("weight") + suffix)
        if scale is None:
            state[name] = found[name]
            continue
        state[name] = dense(found[name], scale, block)
    model.load_state_dict(state)
    return model.eval()


def check_casts(values, weights):
    """Each exported weight against the weight that was trained: one cast to E4M3 changes an element by at most 2^-4 of it,
    or, below the smallest normal code 2^-6, by 2^-10 in units of 1 / scale; 1 / scale <= max|w| / 448 * 2, as a scale
    may be rounded down to a power of two. A scale of the step before may be of a maximum that was a step smaller."""
    assert values
    for name, value in values.items():
        w = weights[name].detach().float()
        bound = w.abs() * 2**-4 + w.abs().max() / 224 * 2**-10
        assert ((value - w).abs() <= bound * 1.01).all(), f"{name}: {((value - w).abs() / bound).max()}"


def check_linears(model, weights, ids):
    """Each linear's y in FP8 against the product of the same x with the exported weight, in the model's evaluation.

    A cast of x to E4M3 changes an element by at most 2^-4 of it, or, below the smallest normal code 2^-6, by 2^-10 in
    units of 1 / scale, where 1 / scale <= max|x| / 448 * 2 with a scale rounded down to a power of two. Sums of K
    products in float32 add K 2^-24. Returns the largest share of the bound that was used.
    """
    used, hooks = [], []

    def hook(name):
        def check(module, arguments, y):
            x, w = arguments[0].double(), weights[name].double()
            size = x.abs() @ w.abs().T
            bound = (2**-4 + x.shape[-1] * 2**-24) * size + x.abs().max() / 224 * 2**-10 * w.abs().sum(1)
            used.append(((y.double() - x @ w.T).abs() / bound).max().item())
            assert used[-1] <= 1, name
        return check

    for name in weights:
        hooks.append(model.get_submodule(name).register_forward_hook(hook(name)))
    with torch.no_grad():
        model.eval()(input_ids=ids)
    model.train()
    for each in hooks:
        each.remove()
    return max(used)


def main(folder, layout="fp8"):
    begin = time.time()
    options = {"fp8.backend": "te", "fp8.te.recipe": "block", "layers.skip": [], "fp8.te.use_autocast_during_eval": True}
    model, _ = trained(options, GPT2, steps=100, rows=2, columns=64)
    print(f"100 steps: {time.time() - begin:.0f} s, {sum(p.numel() for p in model.parameters()) / 1e6:.1f} million parameters")
    begin = time.time()
    # [export]
    kept = octavo.export(model, folder, layout)
    # [/export]
    print("not in FP8:", kept, f"\nexport: {time.time() - begin:.1f} s")
    weights, ids = values(model), tokens(GPT2, 2, 64, 1000)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert all(torch.equal(loaded.get_submodule(name).weight, value) for name, value in weights.items())
    with torch.no_grad():
        exact = torch.equal(loaded(input_ids=ids).logits, plain_of(model, weights)(input_ids=ids).logits)
        of_linears = check_linears(model, weights, ids)
        ours, served = model.eval()(input_ids=ids).logits, loaded(input_ids=ids).logits
    print(f"weights: {len(weights)} linears, equal; logits equal those of the same weights in torch: {exact}")
    print(f"FP8 evaluation: linears use {of_linears:.3f} of their bound; logits differ by "
          f"{((ours - served).norm() / served.norm()).item():.4f} of their norm")


if __name__ == "__main__":
    main(*sys.argv[1:])
