"""The backend under octavo.prepare, by a configuration file that names its folder: torch_test.py FOLDER."""
import pathlib
import sys
import tempfile

import torch

import octavo

STEPS, ROWS = 30, 64


def train(config):
    """The losses. Before the training, outputs are compared with those in fp32."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(48, 130), torch.nn.GELU(), torch.nn.Linear(130, 10))
    x, target = torch.randn(ROWS, 48), torch.randint(0, 10, (ROWS,))
    plain = model[0]
    exact = plain(x)
    # A cast to E4M3 is wrong by 2^-4 of a value, and below the normal codes by 2^-10 / scale, with a scale of at
    # least 448 / amax; twice that for sums in fp32, which add far less.
    size = x.abs() @ plain.weight.abs().T
    small = 2.0 ** -10 / 448 * x.abs().max() * plain.weight.abs().max() * 48
    bound = (size * (2 ** -3 + 2 ** -8) + 2 * small).detach()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = octavo.prepare(model, optimizer, config)
    octavo.report(model).assert_fp8(min_layers=2)
    error = (model[0](x) - exact).abs().detach()
    assert (error <= bound).all() and error.max() > 0, (error / bound).max()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, octavo.report(model)


with tempfile.TemporaryDirectory() as folder:
    config = pathlib.Path(folder, "octavo.toml")
    config.write_text(f'[plugins]\npath = ["{sys.argv[1]}"]\n[layers]\nskip = []\nmin_gain = "off"\n'
                      '[fp8]\nbackend = "rowblock"\n[fp8.rowblock]\namax_history_len = 4\n')
    losses, report = train(config)
    print(report)
    print(f"loss {losses[0]:.4f}, after {STEPS} steps {losses[-1]:.4f}")
    assert "rowblock" in report.summary and losses[-1] < 0.3 * losses[0], losses
    assert train(config)[0] == losses, "another training has other bits"
