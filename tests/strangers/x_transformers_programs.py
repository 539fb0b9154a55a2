"""Classes of x-transformers."""
import torch
import x_transformers
from x_transformers import AutoregressiveWrapper, ContinuousTransformerWrapper, Decoder, Encoder, TransformerWrapper, XTransformer

from stranger import VOCABULARY, adamw, batches, program, sentences, tail


def _language(run, decoder, steps=30, wrap=AutoregressiveWrapper, **arguments):
    model = wrap(TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=16, attn_layers=decoder, **arguments))
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    losses = []
    for tokens in sentences(run, steps):
        loss = model(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}


@program("Decoder: rotary, gated feed-forward, qk norm, one head of keys", apart=0.001)
def decoder(run):
    return _language(run, Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, rotary_pos_emb=True, ff_glu=True, ff_swish=True,
                                  attn_qk_norm=True, attn_one_kv_head=True))


@program("Decoder: layer_dropout, sandwich, relative positions, no bias", apart=0.069)
def dropped(run):
    torch.manual_seed(run.seed)
    return _language(run, Decoder(dim=32, depth=3, heads=2, attn_dim_head=16, layer_dropout=0.2, sandwich_coef=1,
                                  rel_pos_bias=True, ff_no_bias=True))


@program("Decoder with memory tokens, tied embedding, token shift", apart=0.028)
def memory(run):
    return _language(run, Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, shift_tokens=1), num_memory_tokens=4,
                     tie_embedding=True)


@program("XTransformer: encoder and decoder", apart=0.082)
def both(run):
    model = XTransformer(dim=32, enc_num_tokens=VOCABULARY, enc_depth=1, enc_heads=2, enc_max_seq_len=16, enc_attn_dim_head=16,
                         dec_num_tokens=VOCABULARY, dec_depth=1, dec_heads=2, dec_max_seq_len=16, dec_attn_dim_head=16,
                         tie_token_emb=True)
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    losses = []
    for tokens in sentences(run, 30):
        loss = model(tokens[:, :8].flip(1), tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}


@program("ContinuousTransformerWrapper of an Encoder", apart=0.006)
def continuous(run):
    model = ContinuousTransformerWrapper(dim_in=32, dim_out=16, max_seq_len=8,
                                         attn_layers=Encoder(dim=32, depth=2, heads=2, attn_dim_head=16))
    model, optimizer = run.prepare(model, adamw(model.parameters(), 3e-3))
    losses = []
    for x, y in batches(run, 40):
        loss = torch.nn.functional.mse_loss(model(x.view(8, 8, 32)), y.view(8, 8, 16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}
