"""A training of Transformer Engine, moved to Octavo, and the weights of its checkpoints."""
import pathlib
import sys

import octavo
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_gpt

CONFIG = pathlib.Path(__file__).with_suffix(".toml")


# LayerNormMLP has five parameters; in the new model they are in three modules of its parent.
PLACES = {"layer_norm_weight": "norm_2.weight", "layer_norm_bias": "norm_2.bias", "fc1_weight": "up.weight",
          "fc1_bias": "up.bias", "fc2_weight": "down.weight", "fc2_bias": "down.bias"}


def weights_of(saved):
    """A state_dict of Transformer Engine's modules -> one of torch's."""
    weights = {}
    for name, value in saved.items():
        module, _, last = name.rpartition(".")
        if last == "_extra_state":  # scales and histories, as bytes
            continue
        if last in PLACES:
            module = module.rpartition(".")[0]
        weights[f"{module}.{PLACES.get(last, last)}"] = value
    return weights


def main(steps, saved=None):
    """Trains, from a state_dict of Transformer Engine where there is one. Returns the model and its losses."""
    losses = []
    model = tiny_gpt.Gpt()  # modules of torch.nn
    if saved is not None:
        model.load_state_dict(weights_of(saved))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = octavo.prepare(model, optimizer, CONFIG)
    for tokens in tiny_gpt.batches(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


if __name__ == "__main__":
    print(octavo.report(main(tiny_gpt.arguments().steps)[0]))
