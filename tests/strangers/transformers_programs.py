"""Classes of transformers, with random weights."""
import torch
import transformers

from stranger import VOCABULARY, adamw, language, program, sentences, tail

TE = ("delayed", "current", "block")
SMALL = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
             max_position_embeddings=32, bos_token_id=0, eos_token_id=1, pad_token_id=None)


def llama(**arguments):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=1, **arguments))


@program("Llama, generate() between steps", apart=0.020, counts="generate() calls as often as it meets the end.")
def generates(run):
    model = llama()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))

    def generate(i):
        if i % 10 == 5:
            model.eval()
            out = model.generate(torch.arange(8)[:, None], max_new_tokens=4, do_sample=False, pad_token_id=1,
                                 attention_mask=torch.ones(8, 1).long())
            assert out.shape[0] == 8
            model.train()
    return {"loss": language(model, optimizer, run, between=generate)}


@program("Llama, self-critical: generate() in training mode, its log-likelihood raised", apart=0.053,
         counts="generate() calls as often as it meets the end.")
def self_critical(run):
    model = llama()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    torch.manual_seed(run.seed)
    loss = language(model, optimizer, run)
    rewards = []
    for _ in range(15):
        with torch.no_grad():
            out = model.generate(torch.arange(32)[:, None], max_new_tokens=6, do_sample=True, pad_token_id=1,
                                 eos_token_id=None, attention_mask=torch.ones(32, 1).long(), use_cache=True)
        reward = (out[:, 1:] % 2 == 0).float()
        rewards.append(reward.mean().item())
        logits = torch.log_softmax(model(out).logits[:, :-1], -1).gather(2, out[:, 1:, None]).squeeze(2)
        (-(logits * (reward - reward.mean())).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"loss": loss, "reward": tail(rewards, 5)}


@program("T5, teacher forcing", apart=0.057)
def t5(run):
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, feed_forward_proj="gated-gelu"))
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    losses = []
    for tokens in sentences(run, 40):
        loss = model(input_ids=tokens[:, :8], labels=tokens[:, 4:].contiguous()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}


@program("BERT, a classifier on a backbone that is frozen, then trained", apart=0.018, counts="Two sessions count.")
def bert(run):
    model = transformers.BertForSequenceClassification(transformers.BertConfig(
        **{**SMALL, "pad_token_id": 0}, num_labels=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    for p in model.bert.parameters():
        p.requires_grad_(False)
    run.watch(model)
    made = adamw(model.classifier.parameters(), 5e-3)
    if run.arm is not None:
        import octavo
        model, made = octavo.prepare(model, made, overrides=run.overrides)
    losses = []
    for i, tokens in enumerate(sentences(run, 45)):
        if i == 20:
            for p in model.parameters():
                p.requires_grad_(True)
            made = adamw(model.parameters(), 1e-3)
            if run.arm is not None:
                model, made = octavo.prepare(model, made)
        loss = model(input_ids=tokens, labels=tokens[:, 0] % 4).loss
        made.zero_grad()
        loss.backward()
        made.step()
        losses.append(loss.item())
    return {"frozen": tail(losses[:20], 5), "loss": tail(losses)}


@program("Mamba", apart=0.051, counts="Its mixer multiplies by some weights itself.")
def mamba(run):
    model = transformers.MambaForCausalLM(transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=32, state_size=8, num_hidden_layers=1, time_step_rank=16, pad_token_id=0))
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    return {"loss": language(model, optimizer, run, 30)}


@program("GPT-2 by the Trainer, gradient accumulation, a last batch that is short", apart=0.043)
def trainer(run):
    import tempfile
    from octavo.transformers import OctavoCallback
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=2, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=0, eos_token_id=1))
    run.watch(model)
    data = [{"input_ids": t, "labels": t} for batch in sentences(run, 20, 7) for t in batch]
    with tempfile.TemporaryDirectory() as folder:
        made = transformers.Trainer(
            model, transformers.TrainingArguments(
                folder, num_train_epochs=2, per_device_train_batch_size=4, gradient_accumulation_steps=2, use_cpu=True,
                report_to=[], disable_tqdm=True, save_strategy="no", logging_steps=5, learning_rate=5e-3, seed=run.seed),
            train_dataset=data, callbacks=[OctavoCallback(overrides=run.overrides)] if run.arm else [])
        made.train()
        losses = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
        return {"loss": tail(losses, 2), "evaluated": made.evaluate(data[:16])["eval_loss"]}


@program("ViT", apart=0.024)
def vit(run):
    model = transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, image_size=16, patch_size=8,
        num_labels=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    model, optimizer = run.prepare(model, adamw(model.parameters(), 3e-3))
    prototypes = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(12))
    draw = torch.Generator().manual_seed(run.seed)

    def train(optimizer, steps):
        losses = []
        for _ in range(steps):
            kind = torch.randint(0, 8, (16,), generator=draw)
            pixels = prototypes[kind] + 2 * torch.randn(16, 3, 16, 16, generator=draw)
            loss = model(pixel_values=pixels, labels=kind).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return tail(losses, 5)
    return {"loss": train(optimizer, 30)}
