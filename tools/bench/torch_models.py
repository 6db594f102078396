"""Tessera's language models in PyTorch, with the same layers and sizes. A row names the sizes: layers, dim, heads, vocab_size,
length; for a Llama also ffn_dim.

This file can be imported without PyTorch: the module is passed in.
"""


def with_learned_positions(torch, block):
    """The class of a language model of such blocks, with learned positions and a tied head."""
    nn = torch.nn

    class LanguageModel(nn.Module):
        def __init__(self, row):
            super().__init__()
            dim = row["dim"]
            self.tokens, self.positions = nn.Embedding(row["vocab_size"], dim), nn.Embedding(row["length"], dim)
            self.blocks = nn.ModuleList([block(dim, row["heads"]) for _ in range(row["layers"])])
            self.norm = nn.LayerNorm(dim)
            self.head = nn.Linear(dim, row["vocab_size"], bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, tokens):
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
            for each in self.blocks:
                x = each(x)
            return self.head(self.norm(x))

    return LanguageModel


def gpt(torch):
    """The class of GPT-2."""
    nn, F = torch.nn, torch.nn.functional

    class GptBlock(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            batch, length, dim = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(dim, dim=2)
            q, k, v = (y.view(batch, length, self.heads, -1).transpose(1, 2) for y in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    return with_learned_positions(torch, GptBlock)


def llama(torch):
    """The class of Llama."""
    nn, F = torch.nn, torch.nn.functional

    class LlamaBlock(nn.Module):
        def __init__(self, dim, heads, ffn_dim, length):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.RMSNorm(dim, eps=1e-5), nn.RMSNorm(dim, eps=1e-5)
            self.q, self.k, self.v, self.out = (nn.Linear(dim, dim, bias=False) for _ in range(4))
            self.gate, self.up = nn.Linear(dim, ffn_dim, bias=False), nn.Linear(dim, ffn_dim, bias=False)
            self.down = nn.Linear(ffn_dim, dim, bias=False)
            half = dim // heads // 2
            angles = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(half).float() / half))
            self.register_buffer("cos", torch.cat([angles.cos()] * 2, 1), persistent=False)
            self.register_buffer("sin", torch.cat([angles.sin()] * 2, 1), persistent=False)

        def turned(self, x):
            a, b = x.chunk(2, dim=-1)
            return x * self.cos.to(x.dtype) + torch.cat([-b, a], -1) * self.sin.to(x.dtype)

        def forward(self, x):
            batch, length, dim = x.shape
            y = self.norm1(x)
            q, k, v = (w(y).view(batch, length, self.heads, -1).transpose(1, 2) for w in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Llama(nn.Module):
        def __init__(self, row):
            super().__init__()
            dim = row["dim"]
            self.tokens = nn.Embedding(row["vocab_size"], dim)
            self.blocks = nn.ModuleList([LlamaBlock(dim, row["heads"], row["ffn_dim"], row["length"]) for _ in range(row["layers"])])
            self.norm = nn.RMSNorm(dim, eps=1e-5)
            self.head = nn.Linear(dim, row["vocab_size"], bias=False)

        def forward(self, tokens):
            x = self.tokens(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Llama


def transformer(torch):
    """The class of models::Transformer."""
    nn, F = torch.nn, torch.nn.functional

    class TransformerBlock(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.q, self.k, self.v, self.out = (nn.Linear(dim, dim, bias=False) for _ in range(4))
            self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            batch, length, dim = x.shape
            y = self.norm1(x)
            q, k, v = (w(y).view(batch, length, self.heads, -1).transpose(1, 2) for w in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    return with_learned_positions(torch, TransformerBlock)


MODELS = {"gpt": gpt, "llama": llama, "transformer": transformer}


def begin_as_ours(torch, model, layers):
    """GPT-2's initial values: projections into the residual stream are smaller, biases 0."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            into_residual = name.endswith(("out.weight", "down.weight"))
            torch.nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if into_residual else 0.02)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
