"""The operations that tools/bench/bench_ops measures, in PyTorch, by the same names.

A new operation in bench_ops_*.cc must be added here; extents have the same meaning. This file can be imported without
PyTorch: the module is passed in with the inputs.
"""

OPS = {}

# Operations that are also measured with PyTorch set to one library: its name, and a function of torch that returns a
# context in which PyTorch uses it. The function or the operation may raise if PyTorch or the library cannot.
BACKENDS = {}


def op(name):
    """Registers a function that makes an operation: (inputs, *extents) -> what runs it once."""
    def register(make):
        assert name not in OPS, name
        OPS[name] = make
        return make
    return register


def ops(table):
    """The same for several: name -> a function of (torch, its torch.nn.functional, x) for one matrix x."""
    def register(name, function, kind):
        @op(name)
        def make(i, *shape):
            x = getattr(i, kind)(*shape)
            return lambda: function(i.torch, i.functional, x)
    for kind, functions in table.items():
        for name, function in functions.items():
            register(name, function, kind)


class Inputs:
    """Makes an operation's inputs; `leaves` are those that require a gradient."""

    def __init__(self, torch, device, dtype):
        self.torch = torch
        self.functional = torch.nn.functional
        self.device = device
        self.dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        self.leaves = []

    def normal(self, *shape):
        return self._leaf(self.constant(*shape))

    def positive(self, *shape):
        return self._leaf(self.torch.rand(shape, device=self.device, dtype=self.dtype) + 0.5)

    def constant(self, *shape):
        return self.torch.randn(shape, device=self.device, dtype=self.dtype)

    def integers(self, high, *shape):
        return self.torch.randint(high, shape, device=self.device)

    def _leaf(self, x):
        self.leaves.append(x.requires_grad_())
        return x


# ---- elementwise ---------------------------------------------------------------------------------

ops({
    "normal": {
        "neg": lambda t, f, x: t.neg(x),
        "abs": lambda t, f, x: t.abs(x),
        "square": lambda t, f, x: t.square(x),
        "exp": lambda t, f, x: t.exp(x),
        "expm1": lambda t, f, x: t.expm1(x),
        "sin": lambda t, f, x: t.sin(x),
        "cos": lambda t, f, x: t.cos(x),
        "erf": lambda t, f, x: t.erf(x),
        "tanh": lambda t, f, x: t.tanh(x),
        "sigmoid": lambda t, f, x: t.sigmoid(x),
        "relu": lambda t, f, x: t.relu(x),
        "gelu": lambda t, f, x: f.gelu(x),
        "gelu_tanh": lambda t, f, x: f.gelu(x, approximate="tanh"),
        "silu": lambda t, f, x: f.silu(x),
        "softplus": lambda t, f, x: f.softplus(x),
        "clone": lambda t, f, x: x.clone(),
        "sign": lambda t, f, x: t.sign(x),
        "floor": lambda t, f, x: t.floor(x),
        "ceil": lambda t, f, x: t.ceil(x),
        "round": lambda t, f, x: t.round(x),
        "trunc": lambda t, f, x: t.trunc(x),
        "mul_number": lambda t, f, x: x * 0.5,
        "pow_number": lambda t, f, x: t.pow(x, 3),
        "clamp": lambda t, f, x: t.clamp(x, -1, 1),
        "cast": lambda t, f, x: x.to(t.bfloat16 if x.dtype == t.float32 else t.float32),
    },
    "positive": {
        "reciprocal": lambda t, f, x: t.reciprocal(x),
        "log": lambda t, f, x: t.log(x),
        "log1p": lambda t, f, x: t.log1p(x),
        "sqrt": lambda t, f, x: t.sqrt(x),
        "rsqrt": lambda t, f, x: t.rsqrt(x),
    },
    "constant": {
        "gt_number": lambda t, f, x: x > 0,
        "eq": lambda t, f, x: t.eq(x, x),
        "isnan": lambda t, f, x: t.isnan(x),
        "isinf": lambda t, f, x: t.isinf(x),
        "isfinite": lambda t, f, x: t.isfinite(x),
        "logical_not": lambda t, f, x: t.logical_not(x),
        "logical_and": lambda t, f, x: t.logical_and(x, x),
        "floor_divide": lambda t, f, x: t.floor_divide(x, 0.5),
    },
})


def binary(name, function):
    @op(name)
    def make(i, *shape):
        a, b = i.positive(*shape), i.positive(*shape)
        return lambda: function(i.torch, a, b)


for _name in ["add", "sub", "mul", "div", "pow", "remainder", "maximum", "minimum"]:
    binary(_name, lambda t, a, b, name=_name: getattr(t, name)(a, b))
binary("swiglu", lambda t, a, b: t.nn.functional.silu(a) * b)


@op("add_row")
def add_row(i, rows, columns):
    x, row = i.normal(rows, columns), i.normal(columns)
    return lambda: x + row


@op("mul_column")
def mul_column(i, rows, columns):
    x, column = i.normal(rows, columns), i.normal(rows, 1)
    return lambda: x * column


@op("lerp")
def lerp(i, *shape):
    a, b = i.normal(*shape), i.normal(*shape)
    return lambda: i.torch.lerp(a, b, 0.25)


@op("addcmul")
def addcmul(i, *shape):
    a, b, c = i.normal(*shape), i.normal(*shape), i.normal(*shape)
    return lambda: i.torch.addcmul(a, b, c, value=0.5)


@op("addcdiv")
def addcdiv(i, *shape):
    a, b, c = i.normal(*shape), i.normal(*shape), i.positive(*shape)
    return lambda: i.torch.addcdiv(a, b, c, value=0.5)


@op("where")
def where(i, *shape):
    condition, a, b = i.constant(*shape) > 0, i.normal(*shape), i.normal(*shape)
    return lambda: i.torch.where(condition, a, b)


# ---- reductions and products ---------------------------------------------------------------------

ops({
    "normal": {
        "sum": lambda t, f, x: x.sum(),
        "sum_rows": lambda t, f, x: x.sum(1),
        "sum_columns": lambda t, f, x: x.sum(0),
        "mean_rows": lambda t, f, x: x.mean(1),
        "amax_rows": lambda t, f, x: x.amax(1),
        "amin_columns": lambda t, f, x: x.amin(0),
        "logsumexp_rows": lambda t, f, x: x.logsumexp(1),
        "var_rows": lambda t, f, x: x.var(1),
        "var_mean_rows": lambda t, f, x: t.add(*t.var_mean(x, 1)),
        "std_columns": lambda t, f, x: x.std(0),
        "norm": lambda t, f, x: t.linalg.vector_norm(x),
        "cumsum_rows": lambda t, f, x: x.cumsum(1),
        "prod_rows": lambda t, f, x: x.prod(1),
        "max_rows": lambda t, f, x: x.max(1),
        "min_columns": lambda t, f, x: x.min(0),
        "sort_rows": lambda t, f, x: x.sort(stable=True, dim=-1),
        "topk_rows": lambda t, f, x: x.topk(5),
    },
    "constant": {
        "any_rows": lambda t, f, x: x.any(1),
        "all_columns": lambda t, f, x: x.all(0),
        "argmax_rows": lambda t, f, x: x.argmax(-1),
    },
})


@op("matmul")
def matmul(i, m, n, k):
    a, b = i.normal(m, k), i.normal(k, n)
    return lambda: i.torch.matmul(a, b)


def linear_inputs(i, m, n, k):
    return i.normal(m, k), i.normal(n, k), i.normal(n)


@op("linear")
def linear(i, m, n, k):
    x, weight, bias = linear_inputs(i, m, n, k)
    return lambda: i.functional.linear(x, weight, bias)


@op("linear_gelu_tanh")
def linear_gelu_tanh(i, m, n, k):
    x, weight, bias = linear_inputs(i, m, n, k)
    return lambda: i.functional.gelu(i.functional.linear(x, weight, bias), approximate="tanh")


@op("addmm")
def addmm(i, m, n, k):
    c, a, b = i.normal(m, n), i.normal(m, k), i.normal(k, n)
    return lambda: i.torch.addmm(c, a, b)


@op("mv")
def mv(i, m, _, k):
    a, x = i.normal(m, k), i.normal(k)
    return lambda: i.torch.mv(a, x)


@op("outer")
def outer(i, m, n, _):
    a, b = i.normal(m), i.normal(n)
    return lambda: i.torch.outer(a, b)


@op("bmm")
def bmm(i, batch, m, n, k):
    a, b = i.normal(batch, m, k), i.normal(batch, k, n)
    return lambda: i.torch.bmm(a, b)


@op("dot")
def dot(i, n):
    a, b = i.normal(n), i.normal(n)
    return lambda: i.torch.dot(a, b)


# ---- neural networks -----------------------------------------------------------------------------

ops({"normal": {
    "softmax": lambda t, f, x: f.softmax(x, -1),
    "log_softmax": lambda t, f, x: f.log_softmax(x, -1),
    "dropout": lambda t, f, x: f.dropout(x, 0.1),
    "max_pool1d": lambda t, f, x: f.max_pool1d(x, 2),
    "avg_pool1d": lambda t, f, x: f.avg_pool1d(x, 2),
    "adaptive_avg_pool1d": lambda t, f, x: f.adaptive_avg_pool1d(x, 1),
    "adaptive_max_pool1d": lambda t, f, x: f.adaptive_max_pool1d(x, 3),
    "max_pool2d": lambda t, f, x: f.max_pool2d(x, 3, 2, 1),
    "avg_pool2d": lambda t, f, x: f.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda t, f, x: f.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool2d": lambda t, f, x: f.adaptive_max_pool2d(x, 3),
}})


@op("layer_norm")
def layer_norm(i, rows, width):
    x, weight, bias = i.normal(rows, width), i.normal(width), i.normal(width)
    return lambda: i.functional.layer_norm(x, (width,), weight, bias)


@op("rms_norm")
def rms_norm(i, rows, width):
    x, weight = i.normal(rows, width), i.normal(width)
    return lambda: i.functional.rms_norm(x, (width,), weight, 1e-6)


@op("add_layer_norm")
def add_layer_norm(i, rows, width):
    x, residual = i.normal(rows, width), i.normal(rows, width)
    weight, bias = i.normal(width), i.normal(width)
    return lambda: i.functional.layer_norm(x + residual, (width,), weight, bias)


@op("add_rms_norm")
def add_rms_norm(i, rows, width):
    x, residual, weight = i.normal(rows, width), i.normal(rows, width), i.normal(width)
    return lambda: i.functional.rms_norm(x + residual, (width,), weight, 1e-6)


@op("cross_entropy")
def cross_entropy(i, rows, classes):
    logits, targets = i.normal(rows, classes), i.integers(classes, rows)
    return lambda: i.functional.cross_entropy(logits, targets)


def attention(i, shape, causal):
    q, k, v = i.normal(*shape), i.normal(*shape), i.normal(*shape)
    return lambda: i.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


@op("attention")
def attention_full(i, *shape):
    return attention(i, shape, False)


@op("attention_causal")
def attention_causal(i, *shape):
    return attention(i, shape, True)


def by_cudnn(torch):
    """Attention by cuDNN: PyTorch takes another implementation of its own accord."""
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)


for _name in ["attention", "attention_causal"]:
    BACKENDS[_name] = {"cudnn": by_cudnn}


@op("rotary")
def rotary(i, batch, positions, heads, features):
    """As models in PyTorch have it: x cos + rotated(x) sin, with a table for all features, of x's dtype."""
    x = i.normal(batch, positions, heads, features)
    half = features // 2
    inverse = 10000.0 ** (-i.torch.arange(half, device=i.device) / half)
    angles = i.torch.arange(positions, device=i.device)[:, None] * inverse
    angles = i.torch.cat([angles, angles], -1)[:, None, :]
    cos, sin = angles.cos().to(i.dtype), angles.sin().to(i.dtype)

    def run():
        rotated = i.torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * cos + rotated * sin
    return run


@op("embedding")
def embedding(i, entries, features, tokens):
    weight, index = i.normal(entries, features), i.integers(entries, tokens)
    return lambda: i.functional.embedding(index, weight)


@op("batch_norm")
def batch_norm(i, n, channels, *sides):
    x, weight, bias = i.normal(n, channels, *sides), i.normal(channels), i.normal(channels)
    return lambda: i.functional.batch_norm(x, None, None, weight, bias, training=True)


@op("group_norm")
def group_norm(i, n, channels, *sides):
    x, weight, bias = i.normal(n, channels, *sides), i.normal(channels), i.normal(channels)
    return lambda: i.functional.group_norm(x, 4, weight, bias)


@op("conv2d")
def conv2d(i, n, channels, side, filters, kernel):
    x = i.normal(n, channels, side, side)
    weight, bias = i.normal(filters, channels, kernel, kernel), i.normal(filters)
    return lambda: i.functional.conv2d(x, weight, bias, padding=kernel // 2)


@op("conv1d")
def conv1d(i, n, channels, length, filters, kernel):
    x = i.normal(n, channels, length)
    weight, bias = i.normal(filters, channels, kernel), i.normal(filters)
    return lambda: i.functional.conv1d(x, weight, bias, padding=kernel // 2)


# ---- indices and layouts -------------------------------------------------------------------------

@op("gather")
def gather(i, rows, columns, count):
    x, index = i.normal(rows, columns), i.integers(columns, rows, count)
    return lambda: i.torch.gather(x, 1, index)


@op("take_along_dim")
def take_along_dim(i, rows, columns, count):
    x, index = i.normal(rows, columns), i.integers(rows, count, 1)
    return lambda: i.torch.take_along_dim(x, index, 0)


@op("scatter")
def scatter(i, rows, columns, count):
    x, index, source = i.normal(rows, columns), i.integers(columns, rows, count), i.normal(rows, count)
    return lambda: i.torch.scatter(x, 1, index, source)


@op("scatter_add")
def scatter_add(i, rows, columns, count):
    x, index, source = i.normal(rows, columns), i.integers(columns, rows, count), i.normal(rows, count)
    return lambda: i.torch.scatter_add(x, 1, index, source)


@op("index_select_rows")
def index_select_rows(i, rows, columns, count):
    x, index = i.normal(rows, columns), i.integers(rows, count)
    return lambda: i.torch.index_select(x, 0, index)


@op("index_select_columns")
def index_select_columns(i, rows, columns, count):
    x, index = i.normal(rows, columns), i.integers(columns, count)
    return lambda: i.torch.index_select(x, 1, index)


@op("index_pairs")
def index_pairs(i, rows, columns, count):
    x, first, second = i.normal(rows, columns), i.integers(rows, count), i.integers(columns, count)
    return lambda: x[first, second]


@op("index_put")
def index_put(i, rows, columns, count):
    x, index, values = i.normal(rows, columns), i.integers(rows, count), i.normal(count, columns)
    return lambda: x.index_put((index,), values)


@op("index_put_add")
def index_put_add(i, rows, columns, count):
    x, index, values = i.normal(rows, columns), i.integers(rows, count), i.normal(count, columns)
    return lambda: x.index_put((index,), values, accumulate=True)


@op("masked_fill")
def masked_fill(i, rows, columns, _):
    x, mask = i.normal(rows, columns), i.constant(rows, columns) > 0
    return lambda: i.torch.masked_fill(x, mask, 0)


@op("one_hot")
def one_hot(i, rows, columns, _):
    index = i.integers(columns, rows)
    return lambda: i.functional.one_hot(index, columns)


ops({"normal": {
    "cat_rows": lambda t, f, x: t.cat([x, x], 0),
    "cat_columns": lambda t, f, x: t.cat([x, x], 1),
    "stack": lambda t, f, x: t.stack([x, x], 1),
    "transpose_copy": lambda t, f, x: x.transpose(0, 1).clone(memory_format=t.contiguous_format),
    "slice_copy": lambda t, f, x: x[:, :x.shape[1] // 2].clone(memory_format=t.contiguous_format),
    "expand_copy": lambda t, f, x: x[:, None].expand(-1, 2, -1).clone(memory_format=t.contiguous_format),
    "pad": lambda t, f, x: f.pad(x, (2, 2, 1, 1)),
    "roll": lambda t, f, x: t.roll(x, 3, 1),
    "flip": lambda t, f, x: t.flip(x, (1,)),
    "repeat": lambda t, f, x: x.repeat(2, 1),
    "repeat_interleave": lambda t, f, x: x.repeat_interleave(2, 1),
    "split_and_cat": lambda t, f, x: t.cat(x.split(x.shape[1] // 2, 1)[::-1], 1),
    "tril": lambda t, f, x: t.tril(x),
    "triu": lambda t, f, x: t.triu(x),
}})


def made(name):
    @op(name)
    def make(i, *shape):
        function = getattr(i.torch, name)
        return lambda: function(shape, device=i.device, dtype=i.dtype)


for _name in ["zeros", "rand", "randn"]:
    made(_name)


@op("bernoulli")
def bernoulli(i, *shape):
    return lambda: i.torch.bernoulli(i.torch.full(shape, 0.25, device=i.device, dtype=i.dtype))


@op("arange")
def arange(i, rows, columns):
    return lambda: i.torch.arange(rows * columns, device=i.device)


# ---- optimizers ----------------------------------------------------------------------------------

def parameters(i, count, elements):
    out = [i.normal(elements) for _ in range(count)]
    for parameter in out:
        parameter.grad = i.constant(elements)
    return out


@op("adamw_step")
def adamw_step(i, count, elements):
    return i.torch.optim.AdamW(parameters(i, count, elements), fused=True).step


@op("sgd_momentum_step")
def sgd_momentum_step(i, count, elements):
    return i.torch.optim.SGD(parameters(i, count, elements), lr=1e-3, momentum=0.9, fused=True).step


@op("norm_of_list")
def norm_of_list(i, count, elements):
    tensors = [i.constant(elements) for _ in range(count)]
    return lambda: i.torch.nn.utils.get_total_norm(tensors)
