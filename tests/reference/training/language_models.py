"""Cases of the language models, written from their papers. Dropout is off, because our random numbers differ.

GPT-2: Radford et al., "Language models are unsupervised multitask learners", 2019. Llama: Touvron et al., "LLaMA: open and
efficient foundation language models", 2023, with grouped heads as in Ainslie et al., "GQA", 2023. Encoder-decoder: Vaswani
et al., "Attention is all you need", 2017, with norms first. Mixture of experts: Shazeer et al., "Outrageously large neural
networks", 2017; Fedus et al., "Switch transformers", 2021.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from training.models import mean_cross_entropy
from training.cases import case, fixed, sgd, whole

VOCABULARY = 19  # odd
LENGTH, POSITIONS = 11, 13


def adamw(model):
    """eps is larger than f32's rounding of a zero gradient: that of a key's bias is 0, because softmax does not depend on
    it.
    """
    return torch.optim.AdamW(model.parameters(), lr=0.0078125, betas=(0.875, 0.9375), eps=2.0 ** -10,
                             weight_decay=0.125).step


def of_tokens(model, given):
    output = model(given["tokens"])
    return output, mean_cross_entropy(output, given["next"])


def tokens(name, *shape):
    return whole(name, *shape, below=VOCABULARY)


TOKENS = [tokens("tokens", 3, LENGTH), tokens("next", 3, LENGTH)]


def language_cases(name, make, step=of_tokens, inputs=TOKENS):
    """One case with each optimizer."""
    return [case(f"{name}, {how}", make, step, inputs, optimizer)
            for how, optimizer in (("SGD", sgd), ("AdamW", adamw))]


def attend(q, k, v, width, hidden=None):
    """Softmax(q k^T / sqrt(width)) v of each head, spelled out, heads concatenated in order; fewer heads of k and v are
    shared by several of q. Positions do not attend to those that are `hidden` [..., queries, keys].
    """
    q, k, v = (x.unflatten(-1, (-1, width)).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / width ** 0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def later(length):
    """The positions that a causal model hides."""
    return torch.ones(length, length).triu(1).bool()


class Attention(nn.Module):
    """Projections in one matrix: rows of q, k, v."""

    def __init__(self, dim, heads):
        super().__init__()
        self.width = dim // heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * dim))
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x, memory, hidden):
        weights, biases = self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3)
        q, k, v = (F.linear(y, w, b) for y, w, b in zip((x, memory, memory), weights, biases))
        return self.out_proj(attend(q, k, v, self.width, hidden))


# ---- gpt --------------------------------------------------------------------------------------------------------------


class GeluFeedForward(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.up, self.down = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class PreNormBlock(nn.Module):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.ffn_norm = nn.LayerNorm(dim)
        self.feed_forward = GeluFeedForward(dim, inner)

    def forward(self, x, hidden):
        seen = self.attention_norm(x)
        x = x + self.attention(seen, seen, hidden)
        return x + self.feed_forward(self.ffn_norm(x))


class Gpt(nn.Module):
    def __init__(self, dim=12, heads=3, layers=2, tied=True):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, dim)
        self.position_embedding = nn.Embedding(POSITIONS, dim)
        self.blocks = nn.ModuleList(PreNormBlock(dim, heads, 4 * dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.token_embedding.weight

    def forward(self, given):
        length = given.shape[1]
        x = self.token_embedding(given) + self.position_embedding.weight[:length]
        for block in self.blocks:
            x = block(x, later(length))
        return self.head(self.norm(x))


def gpt_cases():
    return language_cases("Gpt", Gpt) + [
        case("Gpt, untied", lambda: Gpt(tied=False), of_tokens, TOKENS)]


# ---- llama ------------------------------------------------------------------------------------------------------------


class RootMeanSquareNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


def turned(x, width, base=10000.0):
    """Rotary positions: x [batch, length, heads * width]. Features i and i + width / 2 of a head are the parts of a complex
    number, rotated by position * base^(-2 i / width); the angle is computed in f64.
    """
    half = width // 2
    frequency = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None] * frequency
    re, im = x.unflatten(-1, (-1, 2, half)).double().unbind(-2)
    pair = torch.complex(re, im) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([pair.real, pair.imag], -1).flatten(2).to(x.dtype)


class GroupedAttention(nn.Module):
    """Query head h uses head h * kv_heads // heads of the keys and values."""

    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.width = dim // heads
        self.rows = [dim, kv_heads * self.width, kv_heads * self.width]
        self.in_proj_weight = nn.Parameter(torch.empty(sum(self.rows), dim))
        self.out_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        q, k, v = F.linear(x, self.in_proj_weight).split(self.rows, -1)
        q, k = turned(q, self.width), turned(k, self.width)
        return self.out_proj(attend(q, k, v, self.width, later(x.shape[1])))


class GatedFeedForward(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.gate = nn.Linear(dim, inner, bias=False)
        self.up = nn.Linear(dim, inner, bias=False)
        self.down = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        gate = self.gate(x)
        return self.down(gate * torch.sigmoid(gate) * self.up(x))


class LlamaBlock(nn.Module):
    def __init__(self, dim, heads, kv_heads, feed_forward):
        super().__init__()
        self.attention_norm = RootMeanSquareNorm(dim)
        self.attention = GroupedAttention(dim, heads, kv_heads)
        self.ffn_norm = RootMeanSquareNorm(dim)
        self.feed_forward = feed_forward

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, dim=16, heads=4, kv_heads=2, inner=27, layers=2, tied=False):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, dim)
        self.blocks = nn.ModuleList(
            LlamaBlock(dim, heads, kv_heads, GatedFeedForward(dim, inner)) for _ in range(layers))
        self.norm = RootMeanSquareNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.token_embedding.weight

    def forward(self, given):
        x = self.token_embedding(given)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def llama_cases():
    return language_cases("Llama", Llama) + [
        case("Llama, tied, one head of keys", lambda: Llama(kv_heads=1, tied=True), of_tokens, TOKENS)]


# ---- encoder and decoder ----------------------------------------------------------------------------------------------


class DecoderBlock(nn.Module):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.cross_attention_norm = nn.LayerNorm(dim)
        self.cross_attention = Attention(dim, heads)
        self.ffn_norm = nn.LayerNorm(dim)
        self.feed_forward = GeluFeedForward(dim, inner)

    def forward(self, x, memory, padding):
        seen = self.attention_norm(x)
        x = x + self.attention(seen, seen, later(x.shape[1]))
        x = x + self.cross_attention(self.cross_attention_norm(x), memory, padding)
        return x + self.feed_forward(self.ffn_norm(x))


def sines(length, dim):
    """Sine and cosine of a frequency are neighbours."""
    frequency = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


class Learned(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.learned = nn.Embedding(POSITIONS, dim)


class EncoderDecoder(nn.Module):
    def __init__(self, dim=12, heads=3, inner=23, learned=False, tied=True):
        super().__init__()
        self.source_embedding = nn.Embedding(VOCABULARY, dim)
        self.target_embedding = nn.Embedding(VOCABULARY, dim)
        if learned:
            self.source_positions, self.target_positions = Learned(dim), Learned(dim)
        self.encoder = nn.ModuleList([PreNormBlock(dim, heads, inner) for _ in range(2)])
        self.encoder_norm = nn.LayerNorm(dim)
        self.decoder = nn.ModuleList([DecoderBlock(dim, heads, inner) for _ in range(2)])
        self.decoder_norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)
        if tied:
            self.target_embedding.weight = self.head.weight = self.source_embedding.weight

    def embed(self, given, which):
        x = getattr(self, which + "_embedding")(given)
        length, dim = x.shape[1:]
        learned = getattr(self, which + "_positions", None)
        return dim ** 0.5 * x + (sines(length, dim).to(x.dtype) if learned is None else learned.learned.weight[:length])

    def forward(self, source, wanted, padding):
        hidden = padding[:, None, None, :]
        memory = self.embed(source, "source")
        for block in self.encoder:
            memory = block(memory, hidden)
        memory = self.encoder_norm(memory)
        x = self.embed(wanted, "target")
        for block in self.decoder:
            x = block(x, memory, hidden)
        return self.head(self.decoder_norm(x))


def of_two_texts(model, given):
    output = model(given["source"], given["wanted"], given["padding"])
    return output, mean_cross_entropy(output, given["next"])


TWO_TEXTS = [tokens("source", 3, 8), fixed("padding", torch.arange(8)[None, :] >= torch.tensor([8, 5, 7])[:, None]),
             tokens("wanted", 3, 6), tokens("next", 3, 6)]


def encoder_decoder_cases():
    return language_cases("EncoderDecoder", EncoderDecoder, of_two_texts, TWO_TEXTS)


def encoder_decoder_learned_cases():
    return [case("EncoderDecoder, learned positions, untied", lambda: EncoderDecoder(learned=True, tied=False),
                 of_two_texts, TWO_TEXTS)]


# ---- mixture of experts -----------------------------------------------------------------------------------------------


class Expert(nn.Module):
    """GatedFeedForward, or the same without a gate."""

    def __init__(self, dim, inner, gated):
        super().__init__()
        self.gate = nn.Linear(dim, inner, bias=False) if gated else None
        self.up, self.down = nn.Linear(dim, inner, bias=False), nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        if self.gate is None:
            return self.down(F.gelu(self.up(x)))
        gate = self.gate(x)
        return self.down(gate * torch.sigmoid(gate) * self.up(x))


class Mixture(nn.Module):
    """`capacity` is a multiple of an expert's even share; None: unlimited."""

    def __init__(self, dim, inner, experts, top, gated, normalize, capacity, balance, z):
        super().__init__()
        self.top, self.normalize, self.capacity, self.balance, self.z = top, normalize, capacity, balance, z
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, inner, gated) for _ in range(experts))
        self.refused = 0

    def admitted(self, chosen):
        """The accepted pairs of token and choice: first choices have priority."""
        tokens, count = len(chosen), len(self.experts)
        limit = tokens
        if self.capacity is not None and self.training:
            limit = math.ceil(self.capacity * tokens * self.top / count)
        taken, pairs = [0] * count, []
        for place in range(self.top):
            for token in range(tokens):
                expert = int(chosen[token, place])
                if taken[expert] < limit:
                    taken[expert] += 1
                    pairs.append((token, place))
        self.refused += tokens * self.top - len(pairs)
        return pairs

    def forward(self, x):
        rows = x.flatten(0, -2)
        logits = self.router(rows)
        shares = logits.softmax(-1)
        weights, chosen = shares.topk(self.top, -1)
        if self.normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        pairs = self.admitted(chosen)
        out = torch.zeros_like(rows)
        for expert, layer in enumerate(self.experts):  # also without rows: gradients are then 0, not missing
            mine = [(token, place) for token, place in pairs if chosen[token, place] == expert]
            token, place = torch.tensor(mine, dtype=torch.long).reshape(-1, 2).unbind(1)
            out = out.index_add(0, token, weights[token, place, None] * layer(rows[token]))
        demand = F.one_hot(chosen, len(self.experts)).flatten(0, 1).to(x.dtype).mean(0)
        auxiliary = self.balance * len(self.experts) * (demand * shares.mean(0)).sum()
        auxiliary = auxiliary + self.z * logits.logsumexp(-1).square().mean()
        return out.reshape(x.shape), auxiliary


class MixtureOfExperts(nn.Module):
    def __init__(self, dim=16, heads=4, kv_heads=2, layers=2, experts=5, top=2, gated=True, normalize=True,
                 capacity=None, balance=0.125, z=0.0):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, dim)
        self.blocks = nn.ModuleList(
            LlamaBlock(dim, heads, kv_heads, Mixture(dim, 13, experts, top, gated, normalize, capacity, balance, z))
            for _ in range(layers))
        self.norm = RootMeanSquareNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)

    def forward(self, given):
        x, auxiliary = self.token_embedding(given), 0.0
        for block in self.blocks:
            x = x + block.attention(block.attention_norm(x))
            y, more = block.feed_forward(block.ffn_norm(x))
            x, auxiliary = x + y, auxiliary + more
        return self.head(self.norm(x)), auxiliary


def of_mixture(model, given):
    output, auxiliary = model(given["tokens"])
    return output, mean_cross_entropy(output, given["next"]) + auxiliary


def refused_by(models):
    return [block.feed_forward.refused for model in models for block in model.blocks]


class Kept:
    """make() of a case, and the models that it made."""

    def __init__(self, **options):
        self.options, self.made = options, []

    def __call__(self):
        self.made.append(MixtureOfExperts(**self.options))
        return self.made[-1]


def mixture_cases():
    make = Kept()
    cases = language_cases("MixtureOfExperts", make, of_mixture)
    assert not any(refused_by(make.made))
    return cases


def mixture_capacity_cases():
    cases = []
    for name, make in {"capacity, z loss": Kept(capacity=1.0, z=0.0625),
                       "one expert of a token, gelu, capacity": Kept(top=1, gated=False, normalize=False,
                                                                     capacity=1.25)}.items():
        cases.append(case("MixtureOfExperts, " + name, make, of_mixture, TOKENS))
        assert all(refused_by(make.made)), name
    return cases


FILES = {
    "encoder_decoder_model": encoder_decoder_cases,
    "encoder_decoder_learned_model": encoder_decoder_learned_cases,
    "gpt_model": gpt_cases,
    "llama_model": llama_cases,
    "mixture_of_experts_model": mixture_cases,
    "mixture_of_experts_capacity_model": mixture_capacity_cases,
}
