"""Cases of attention and of transformer layers. Dropout is off, because our random numbers differ."""

import torch
import torch.nn.functional as F
from torch import nn

from training.cases import case, fixed, mean_square, real, target

# In evaluation mode PyTorch's fast path returns zeros at padded positions.
torch.backends.mha.set_fastpath_enabled(False)

DIM, HEADS = 8, 2
HIDDEN = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 1]]).bool()  # every row has a key
PADDED = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]]).bool()
ADDED = torch.tensor([[0, 0.5, -1, 0, 0.25], [0.5, 0, 0, -0.5, 1], [-2, 1, 0, 0.75, 0]])


def causal(size):
    return torch.ones(size, size).triu(1).bool()


# ---- multi-head attention ---------------------------------------------------------------------------------------------


def self_attention(name, inputs=(), bias=True, **names):
    """`names` of arguments, and of the inputs for them."""

    def step(model, given):
        arguments = {k: given[v] for k, v in names.items()}
        output, _ = model(given["x"], given["x"], given["x"], need_weights=False, **arguments)
        return output, mean_square(output, given)

    return case(name, lambda: nn.MultiheadAttention(DIM, HEADS, bias=bias, batch_first=True), step,
                [real("x", 2, 5, DIM), *inputs, target(2, 5, DIM)])


def cross_attention(name, inputs=(), kdim=None, vdim=None, weights=False, batch_first=True, **names):
    def step(model, given):
        arguments = {k: given[v] for k, v in names.items()}
        output, seen = model(given["query"], given["key"], given["value"], need_weights=weights, **arguments)
        if not weights:
            return output, mean_square(output, given)
        return torch.cat([output, seen], -1), mean_square(output, given) + (seen ** 2).mean()

    def shape(length, dim):
        return (2, length, dim) if batch_first else (length, 2, dim)

    return case(name, lambda: nn.MultiheadAttention(DIM, HEADS, kdim=kdim, vdim=vdim, batch_first=batch_first), step,
                [real("query", *shape(3, DIM)), real("key", *shape(5, kdim or DIM)),
                 real("value", *shape(5, vdim or DIM)), *inputs, target(*shape(3, DIM))])


def turned(x):
    """Rotary positions in plain form: x [batch, positions, heads, features], features i and i + half form a pair."""
    half = x.shape[-1] // 2
    frequency = torch.tensor([10000.0 ** (-i / half) for i in range(half)], dtype=torch.float64)
    angle = (torch.arange(x.shape[1]).double()[:, None] * frequency)[:, None, :]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class GroupedAttention(nn.Module):
    """Self-attention in which several query heads share a head of keys and values, which are repeated."""

    def __init__(self, dim, heads, kv_heads, rotary=False):
        super().__init__()
        self.dim, self.heads, self.kv_heads, self.rotary = dim, heads, kv_heads, rotary
        kv_dim = dim // heads * kv_heads
        self.in_proj_weight = nn.Parameter(torch.empty(dim + 2 * kv_dim, dim))
        self.in_proj_bias = nn.Parameter(torch.empty(dim + 2 * kv_dim))
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x, is_causal):
        head_dim = self.dim // self.heads
        parts = [self.heads, self.kv_heads, self.kv_heads]
        mixed = F.linear(x, self.in_proj_weight, self.in_proj_bias).split([n * head_dim for n in parts], -1)
        q, k, v = (part.unflatten(-1, (n, head_dim)) for part, n in zip(mixed, parts))
        if self.rotary:
            q, k = turned(q), turned(k)
        repeats = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeats, 2), v.repeat_interleave(repeats, 2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.out_proj(out.transpose(1, 2).flatten(2))


def grouped_attention(name, heads, kv_heads, rotary=False):
    def step(model, given):
        output = model(given["x"], is_causal=rotary)
        return output, mean_square(output, given)

    return case(name, lambda: GroupedAttention(8, heads, kv_heads, rotary), step, [real("x", 2, 5, 8), target(2, 5, 8)])


def attention_cases():
    per_head = torch.stack([HIDDEN, ~HIDDEN | torch.eye(3, 5).bool(), HIDDEN.flip(1), HIDDEN.flip(0)])
    return [
        self_attention("self"),
        self_attention("self, without bias", bias=False),
        self_attention("self, causal", [fixed("mask", causal(5))], attn_mask="mask"),
        self_attention("self, padding", [fixed("padding", PADDED)], key_padding_mask="padding"),
        cross_attention("cross"),
        cross_attention("cross, keys and values of other dims", kdim=4, vdim=3),
        cross_attention("cross, length before batch", batch_first=False),
        cross_attention("cross, bool mask and padding", [fixed("mask", HIDDEN), fixed("padding", PADDED)],
                        attn_mask="mask", key_padding_mask="padding"),
        cross_attention("cross, floating mask", [fixed("mask", ADDED)], attn_mask="mask"),
        cross_attention("cross, a mask for each head", [fixed("mask", per_head)], attn_mask="mask"),
        cross_attention("cross, with weights", [fixed("padding", PADDED)], weights=True, key_padding_mask="padding"),
        grouped_attention("grouped heads", 4, 2),
        grouped_attention("one head of keys and values", 4, 1),
        grouped_attention("grouped heads, rotary, causal", 2, 1, True),
    ]


# ---- transformer ------------------------------------------------------------------------------------------------------


def encoder_layer(norm_first, **more):
    return nn.TransformerEncoderLayer(DIM, HEADS, 10, 0.0, batch_first=True, norm_first=norm_first, **more)


def decoder_layer(norm_first, **more):
    return nn.TransformerDecoderLayer(DIM, HEADS, 10, 0.0, batch_first=True, norm_first=norm_first, **more)


def encoder_case(name, make, inputs=(), **names):
    def step(model, given):
        output = model(given["x"], **{k: given[v] for k, v in names.items()})
        return output, mean_square(output, given)

    return case(name, make, step, [real("x", 2, 5, DIM), *inputs, target(2, 5, DIM)])


def decoder_case(name, make, inputs=(), **names):
    def step(model, given):
        output = model(given["x"], given["memory"], **{k: given[v] for k, v in names.items()})
        return output, mean_square(output, given)

    return case(name, make, step, [real("x", 2, 3, DIM), real("memory", 2, 5, DIM), *inputs, target(2, 3, DIM)])


def transformer_case(name, inputs=(), batch_first=True, names=None, **more):
    def step(model, given):
        output = model(given["source"], given["target_in"], **{k: given[v] for k, v in (names or {}).items()})
        return output, mean_square(output, given)

    def shape(length):
        return (2, length, DIM) if batch_first else (length, 2, DIM)

    return case(name, lambda: nn.Transformer(DIM, HEADS, 1, 2, 10, 0.0, batch_first=batch_first, **more), step,
                [real("source", *shape(5)), real("target_in", *shape(3)), *inputs, target(*shape(3))])


def encoder_cases():
    masks = [fixed("mask", causal(5)), fixed("padding", PADDED)]
    return [
        encoder_case("encoder layer", lambda: encoder_layer(False)),
        encoder_case("encoder layer, norm first, gelu", lambda: encoder_layer(True, activation="gelu")),
        encoder_case("encoder layer, without bias", lambda: encoder_layer(False, bias=False)),
        encoder_case("encoder layer, masks", lambda: encoder_layer(False), masks, src_mask="mask",
                     src_key_padding_mask="padding"),
        encoder_case("encoder of two layers and a norm", lambda: nn.TransformerEncoder(
            encoder_layer(True), 2, nn.LayerNorm(DIM), enable_nested_tensor=False), masks, mask="mask",
                     src_key_padding_mask="padding"),
    ]


def decoder_cases():
    own = [fixed("mask", causal(3)), fixed("padding", PADDED)]
    return [
        decoder_case("decoder layer", lambda: decoder_layer(False)),
        decoder_case("decoder layer, norm first, gelu", lambda: decoder_layer(True, activation="gelu")),
        decoder_case("decoder layer, masks", lambda: decoder_layer(False), own, tgt_mask="mask",
                     memory_key_padding_mask="padding"),
    ]


def transformer_cases():
    names = {"tgt_mask": "mask", "src_key_padding_mask": "padding", "memory_key_padding_mask": "padding"}
    own = [fixed("mask", causal(3)), fixed("padding", PADDED)]
    return [
        transformer_case("Transformer, length before batch", batch_first=False),
        transformer_case("Transformer, norm first, gelu, masks", own, names=names, norm_first=True, activation="gelu"),
    ]


FILES = {
    "attention": attention_cases,
    "encoder_layer": encoder_cases,
    "decoder_layer": decoder_cases,
    "transformer": transformer_cases,
}
