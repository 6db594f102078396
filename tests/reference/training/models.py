"""Cases of complete models: those of the sharding tests. Dropout is off, because our random numbers differ."""

import torch
import torch.nn.functional as F
from torch import nn

from training.cases import case, of_x, real, target, whole


def on_rows(name, make, dim, out=None):
    return case(name, make, of_x(), [real("x", 4, dim), target(4, out or dim)])


# ---- small ones -------------------------------------------------------------------------------------------------------


class MLP(nn.Module):
    def __init__(self, dim, multiplier=4, bias=True, with_buffer=False):
        super().__init__()
        self.in_proj = nn.Linear(dim, multiplier * dim, bias)
        self.out_proj = nn.Linear(multiplier * dim, dim, bias)
        self.register_buffer("buffer", torch.empty(dim) if with_buffer else None)

    def forward(self, x):
        y = F.relu(self.out_proj(F.relu(self.in_proj(x))))
        return y if self.buffer is None else y + self.buffer


def mlp_stack(dim, with_norm):
    blocks = [MLP(dim, 3), MLP(dim), MLP(dim, 3)]
    return nn.Sequential(*blocks, *([nn.LayerNorm(dim, bias=False)] if with_norm else []))


class DoubleLinear(nn.Module):
    def __init__(self, dim, use_second=True):
        super().__init__()
        self.lin1 = nn.Linear(dim, dim)
        self.lin2 = nn.Linear(dim, dim)
        self.use_second = use_second

    def forward(self, x):
        first = F.relu(self.lin1(x))
        return torch.cat([first, F.relu(self.lin2(x))], -1) if self.use_second else first


class Within(nn.Module):
    """A layer under a given name."""

    def __init__(self, name, layer):
        super().__init__()
        self.name = name
        self.add_module(name, layer)

    def forward(self, x):
        return getattr(self, self.name)(x)


class SkipModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 10, bias=False)
        self.linear_skip = Within("lin", nn.Linear(10, 10, bias=False))
        self.nested_linear = Within("nested_linear", nn.Linear(10, 10, bias=False))

    def forward(self, x):
        return self.nested_linear(self.linear_skip(self.linear(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.fc3(self.fc2(self.fc1(x)))


class MLPModule(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.net1, self.net2 = nn.Linear(10, 16, bias), nn.Linear(16, 10, bias)

    def forward(self, x):
        return self.net2(F.relu(self.net1(x)))


class SaveForwardInputsModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = Within("l", nn.Linear(100, 100)), Within("l", nn.Linear(100, 100))

    def forward(self, x):
        return self.c2(self.c1(x))


def in_module(*layers):
    return Within("module", nn.Sequential(*layers))


def nested_wrapped():
    inner = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 16))
    return in_module(nn.Linear(8, 4), inner, nn.Linear(16, 4), nn.Linear(4, 8))


def non_uniform():
    inner = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 16))
    model = in_module(nn.Linear(8, 4), inner, nn.Sequential(nn.Linear(16, 4), nn.Linear(4, 8)))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("module.2.1.")
    return model


def mixture_of_experts():
    return in_module(nn.Linear(8, 12), nn.Linear(12, 23), nn.Linear(23, 12), nn.Linear(12, 8))


def small_cases():
    return [
        on_rows("MLP", lambda: MLP(5), 5),
        on_rows("MLP, multiplier 3, without bias, with buffer", lambda: MLP(5, 3, False, True), 5),
        on_rows("MLPStack", lambda: mlp_stack(6, False), 6),
        on_rows("MLPStack with norm", lambda: mlp_stack(6, True), 6),
        on_rows("MLPModule without bias", lambda: MLPModule(False), 10),
        on_rows("MLPStacked", lambda: Within("layers", nn.Sequential(MLPModule(), MLPModule())), 10),
        on_rows("SaveForwardInputsModel", SaveForwardInputsModel, 100),
        on_rows("DoubleLinear", lambda: DoubleLinear(5), 5, 10),
        on_rows("DoubleLinear, second unused", lambda: DoubleLinear(5, False), 5),
        on_rows("NestedLinear", lambda: Within("nested_linear", nn.Linear(10, 10, bias=False)), 10),
        on_rows("SkipModel", SkipModel, 10),
        on_rows("Net", Net, 2),
        on_rows("NestedWrappedModule", nested_wrapped, 8),
        on_rows("NonUniformReqGradNWM", non_uniform, 8),
        on_rows("MixtureOfExperts", mixture_of_experts, 8),
    ]


# ---- transformers -----------------------------------------------------------------------------------------------------


def mean_cross_entropy(output, classes):
    return F.cross_entropy(output.flatten(0, -2), classes.flatten())


class SharedTransformer(nn.Module):
    """PyTorch's Transformer between an embedding and an output that share their weight."""

    def __init__(self, with_batch_norm):
        super().__init__()
        self.embed_tokens = nn.Embedding(23, 16)
        self.transformer = nn.Transformer(16, 8, 2, 2, 8, 0.0)
        self.output_proj = nn.Linear(16, 23)
        self.output_proj.weight = self.embed_tokens.weight
        self.register_buffer("vocab_bias", torch.empty(16))
        self.register_buffer("long_buffer", torch.zeros(16, dtype=torch.long))
        self.bn = nn.BatchNorm1d(2) if with_batch_norm else nn.Identity()

    def forward(self, source, wanted):
        x = self.embed_tokens(source)
        x = x + self.vocab_bias + self.long_buffer.to(x.dtype)
        return self.output_proj(self.transformer(x, self.bn(self.embed_tokens(wanted))))


def shared_transformer_case(name, with_batch_norm):
    def step(model, given):
        output = model(given["source"], given["wanted"])
        return output, mean_cross_entropy(output, given["wanted"])

    return case(name, lambda: SharedTransformer(with_batch_norm), step,
                [whole("source", 6, 2, below=23), whole("wanted", 4, 2, below=23)])


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        return self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w1, self.w2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


class TransformerBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.ffn_norm = nn.LayerNorm(dim)
        self.feed_forward = FeedForward(dim)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """A decoder of tokens: vocabulary 8, at most 16 positions."""

    def __init__(self, layers=2, tied=True, dim=16, heads=4):
        super().__init__()
        self.tok_embeddings = nn.Embedding(8, dim)
        self.pos_embeddings = nn.Embedding(16, dim)
        self.layers = nn.ModuleList(TransformerBlock(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, 8, bias=False)
        if tied:
            self.output.weight = self.tok_embeddings.weight

    def forward(self, tokens):
        x = self.tok_embeddings(tokens) + self.pos_embeddings(torch.arange(tokens.shape[1]))
        for block in self.layers:
            x = block(x)
        return self.output(self.norm(x))


def transformer_case(name, elements, **options):
    def make():
        model = Transformer(**options)
        assert sum(p.numel() for p in model.parameters()) == elements
        return model

    def step(model, given):
        output = model(given["tokens"])
        return output, mean_cross_entropy(output, given["next"])

    return case(name, make, step, [whole("tokens", 2, 13, below=8), whole("next", 2, 13, below=8)])


def shared_transformer_cases():
    return [
        shared_transformer_case("TransformerWithSharedParams", True),
        shared_transformer_case("TransformerWithSharedParams without batch norm", False),
    ]


def transformer_cases():
    return [
        transformer_case("Transformer", 6848),
        transformer_case("Transformer, untied", 6976, tied=False),
        transformer_case("Transformer of three layers", 10064, layers=3),
    ]


FILES = {
    "small_model": small_cases,
    "shared_transformer_model": shared_transformer_cases,
    "transformer_model": transformer_cases,
}
