"""Classes of diffusers: models, schedulers, EMAModel, hooks."""
import diffusers
import torch
from diffusers.training_utils import EMAModel

from stranger import adamw, program, tail

ALL = ("delayed", "current", "block", "msamp")


def dit():
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, num_layers=2, norm_num_groups=4,
        sample_size=8, patch_size=2, num_embeds_ada_norm=16, dropout=0.0)
    for module in model.modules():
        if isinstance(module, diffusers.models.embeddings.LabelEmbedding):
            module.dropout_prob = 0.0  # one draw for all runs
    return model


def pictures(run, steps, rows=16):
    prototypes = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(12))
    draw = torch.Generator().manual_seed(700 + run.seed)
    for _ in range(steps):
        kind = torch.randint(0, 4, (rows,), generator=draw)
        clean = prototypes[kind] + 0.1 * torch.randn(rows, 4, 8, 8, generator=draw)
        yield kind, clean, torch.randn(rows, 4, 8, 8, generator=draw), torch.randint(0, 1000, (rows,), generator=draw)


def dit_loss(model, scheduler, kind, clean, noise, times):
    noisy = scheduler.add_noise(clean, noise, times)
    return torch.nn.functional.mse_loss(model(noisy, timestep=times, class_labels=kind).sample, noise)


@program("DiT, EMAModel stored, copied in, validated, restored in the middle of an epoch", apart=0.062,
         counts="A projection of the label is called in both.", moves="Zero-initialized layers turn around.")
def dit_ema(run):
    model, scheduler = dit(), diffusers.DDPMScheduler()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    ema = EMAModel(model.parameters(), decay=0.9)
    losses, valid = [], []
    for i, batch in enumerate(pictures(run, 40)):
        loss = dit_loss(model, scheduler, *batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        ema.step(model.parameters())
        if i % 2:
            ema.store(model.parameters())
            ema.copy_to(model.parameters())
            with torch.no_grad():
                valid.append(dit_loss(model, scheduler, *batch).item())
            ema.restore(model.parameters())
    return {"loss": tail(losses, 20), "valid": tail(valid, 10)}


@program("UNet2DModel, EMAModel as a model of its own (use_ema_warmup), sampled", apart=0.023, counts="Sampling needs no gradient.")
def unet(run):
    model = diffusers.UNet2DModel(sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 32), layers_per_block=1,
                                  norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                                  up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8)
    scheduler = diffusers.DDIMScheduler()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 3e-3))
    ema = EMAModel(model.parameters(), decay=0.9, use_ema_warmup=True, foreach=True)
    losses = []
    for _, clean, noise, times in pictures(run, 25, 8):
        loss = torch.nn.functional.mse_loss(model(scheduler.add_noise(clean, noise, times), times).sample, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.step(model.parameters())
        losses.append(loss.item())
    ema.copy_to(model.parameters())
    model.eval()
    scheduler.set_timesteps(4)
    x = torch.randn(8, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(model(x, t).sample, t, x).prev_sample
    return {"loss": tail(losses), "sampled": x.std()}


@program("UNet2DConditionModel with LoRA by add_adapter", apart=0.030, arms=("delayed", "current"))
def lora(run):
    import peft
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8)
    model.requires_grad_(False)
    model.add_adapter(peft.LoraConfig(r=16, lora_alpha=32, init_lora_weights="gaussian",
                                      target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
    scheduler = diffusers.DDPMScheduler()
    model, optimizer = run.prepare(model, adamw([p for p in model.parameters() if p.requires_grad], 3e-3))
    text = torch.randn(4, 5, 32, generator=torch.Generator().manual_seed(3))
    losses = []
    for kind, clean, noise, times in pictures(run, 25, 8):
        out = model(scheduler.add_noise(clean, noise, times), times, encoder_hidden_states=text[kind]).sample
        loss = torch.nn.functional.mse_loss(out, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}


@program("DiT, group offloading of diffusers", apart=0.004, arms=("delayed", "current"),
         moves="Zero-initialized layers turn around.")
def group_offloading(run):
    from diffusers.hooks import apply_group_offloading
    model, scheduler = dit(), diffusers.DDPMScheduler()
    apply_group_offloading(model, onload_device=torch.device("cpu"), offload_device=torch.device("cpu"),
                           offload_type="leaf_level")
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    losses = []
    for batch in pictures(run, 30):
        loss = dit_loss(model, scheduler, *batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}


@program("DiT, gradient checkpointing, cast_training_params, bf16 autocast", apart=0.004,
         counts="Each forward runs twice.", moves="Zero-initialized layers turn around.")
def checkpointed(run):
    model, scheduler = dit(), diffusers.DDPMScheduler()
    model.enable_gradient_checkpointing()
    model.train()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    losses = []
    for batch in pictures(run, 30):
        with torch.autocast("cpu", torch.bfloat16):
            loss = dit_loss(model, scheduler, *batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}
