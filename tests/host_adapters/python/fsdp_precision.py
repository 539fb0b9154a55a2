"""What two ranks of fsdp_test.py run in 16 bits: FSDP's mixed precision, and float16 with GradScaler."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy

import octavo
from conftest import te
from fsdp_parts import FEW, ORDERS, Net, backward, batch, ddp_model, outcome, plain, sharded, train


def precision_run():
    """The first step in bfloat16 with float32 shards and sums, and the same of a bfloat16 model."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    twin = Net().bfloat16()
    octavo.prepare(twin, overrides=te())
    x, target = batch(0)
    expected = torch.nn.functional.cross_entropy(twin(x.bfloat16()).float(), target)
    expected.backward()
    gradients = {}
    for n, p in twin.named_parameters():
        gradients[n] = p.grad.float()
        dist.all_reduce(gradients[n])
        gradients[n] /= dist.get_world_size()
    found = {"loss": expected.item(), "gradients": gradients}
    for order in ORDERS:
        model, optimizer = sharded(te(), order, mp_policy=policy)
        loss = backward(model, 0)
        found[order] = {"loss": loss, "gradients": {n: plain(p.grad) for n, p in model.named_parameters()}}
        optimizer.step()
        found[order]["later"] = train(model, optimizer, FEW, 1)
    return found


def scaled_run():
    """A scale that begins too large: some steps are left out, others happen."""
    def learn(model, optimizer):
        scaler, losses = torch.amp.GradScaler("cpu", init_scale=2.0**24), []
        for step in range(4 * FEW):
            optimizer.zero_grad()
            x, target = batch(step)
            with torch.autocast("cpu", torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x).float(), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses += [loss.item(), scaler.get_scale()]
        return losses
    return {name: outcome(model, learn(model, optimizer))
            for name, (model, optimizer) in (("ddp", ddp_model()), ("fsdp", sharded(te())))}
