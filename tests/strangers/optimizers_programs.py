"""Packages of optimizers and averages: torch-ema, ema-pytorch, schedulefree, prodigyopt, lion-pytorch."""
import ema_pytorch
import lion_pytorch
import prodigyopt
import schedulefree
import torch
import torch_ema

from stranger import adamw, batches, error, fit, mlp, program, tail, unseen

TE = ("delayed", "current", "block")


@program("torch-ema: average_parameters() in the middle of an epoch, no eval()", apart=0.039)
def torch_ema_inside(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    average = torch_ema.ExponentialMovingAverage(model.parameters(), decay=0.95, use_num_updates=False)
    losses, valid = [], []
    for i, (x, y) in enumerate(batches(run, 40)):
        loss = error(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        average.update()
        if i % 2:
            with torch.no_grad(), average.average_parameters():
                valid.append(error(model, x, y).item())
    return {"loss": tail(losses), "valid": tail(valid, 5), **unseen(model, run)}


@program("torch-ema: the average as teacher in the same step", apart=0.036)
def torch_ema_teacher(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    average = torch_ema.ExponentialMovingAverage(model.parameters(), decay=0.98, use_num_updates=False)
    losses = []
    for x, y in batches(run, 40):
        out = model(x)
        with torch.no_grad(), average.average_parameters():
            target = model(x)
        loss = torch.nn.functional.mse_loss(out, y) + torch.nn.functional.mse_loss(out, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        average.update()
    return {"loss": tail(losses), **unseen(model, run)}


@program("ema-pytorch: EMA, its copy evaluated each few steps", apart=0.031, counts="The copy is evaluated only.")
def ema_copy(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    average = ema_pytorch.EMA(model, beta=0.9, update_every=1, update_after_step=0)
    losses, valid = [], []
    for x, y in batches(run, 40):
        loss = error(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update()
        losses.append(loss.item())
        with torch.no_grad():
            valid.append(error(average, x, y).item())
    return {"loss": tail(losses), "valid": tail(valid), **unseen(average.ema_model, run)}


@program("ema-pytorch: the average copied back into the model (Switch EMA)", apart=0.053)
def ema_back(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    average = ema_pytorch.EMA(model, beta=0.9, update_every=1, update_after_step=0)
    losses = []
    for i, (x, y) in enumerate(batches(run, 40)):
        loss = error(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update()
        losses.append(loss.item())
        if i % 5 == 4:
            average.update_model_with_ema()
    return {"loss": tail(losses), **unseen(model, run)}


@program("schedulefree: AdamWScheduleFree, optimizer.eval() and train() around validation", apart=0.036, arms=TE)
def schedule_free(run):
    model, _ = run.prepare(mlp())
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=2e-2, warmup_steps=5)
    losses, valid = [], []
    for i, (x, y) in enumerate(batches(run, 40)):
        optimizer.train()
        loss = error(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        optimizer.eval()
        with torch.no_grad():
            valid.append(error(model, x, y).item())
    optimizer.eval()
    return {"loss": tail(losses), "valid": tail(valid), **unseen(model, run)}


@program("schedulefree: ScheduleFreeWrapper of SGD", apart=0.033, arms=TE)
def schedule_free_wrapper(run):
    model, _ = run.prepare(mlp())
    wrapped = schedulefree.ScheduleFreeWrapper(torch.optim.SGD(model.parameters(), lr=1.0), momentum=0.9)
    wrapped.train()
    losses = []
    for x, y in batches(run, 40):
        loss = error(model, x, y)
        wrapped.zero_grad()
        loss.backward()
        wrapped.step()
        losses.append(loss.item())
    wrapped.eval()
    return {"loss": tail(losses), **unseen(model, run)}


@program("prodigyopt: Prodigy", apart=0.057, arms=TE, moves="Its rate follows the noise of early gradients.")
def prodigy(run):
    model, _ = run.prepare(mlp())
    return {"loss": fit(model, prodigyopt.Prodigy(model.parameters(), lr=1.0, d0=1e-3), run, 80), **unseen(model, run)}


@program("lion-pytorch: Lion", apart=0.066, arms=TE)
def lion(run):
    model, _ = run.prepare(mlp())
    return {"loss": fit(model, lion_pytorch.Lion(model.parameters(), lr=3e-3), run), **unseen(model, run)}
