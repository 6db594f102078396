"""Cases of single layers; those without parameters are between two linear ones."""

from torch import nn

from training.cases import case, mean_square, of_x, real, target, whole


def net(name, *layers, x, y):
    """A Sequential of new layers, from x to y."""
    return case(name, lambda: nn.Sequential(*[make() for make in layers]), of_x(), [real("x", *x), target(*y)])


def alone(name, make, x, y, step=None):
    return case(name, make, step or of_x(), [real("x", *x), target(*y)])


def linear(inner, outer, bias=True):
    return lambda: nn.Linear(inner, outer, bias)


def linear_cases():
    return [
        alone("Linear", linear(5, 3), (7, 5), (7, 3)),
        alone("Linear without bias, three dims", linear(5, 3, False), (2, 3, 5), (2, 3, 3)),
        net("Sequential", linear(5, 11), nn.ReLU, linear(11, 7), nn.GELU, linear(7, 3), x=(9, 5), y=(9, 3)),
    ]


# ---- activations ------------------------------------------------------------------------------------------------------


class Hardsigmoid(nn.Module):
    """The formula: nn.Hardsigmoid's derivative has 1/6 in f32 for every dtype."""

    def forward(self, x):
        return (x + 3).clamp(0, 6) / 6


ACTIVATIONS = {
    "ReLU": nn.ReLU,
    "ReLU6": nn.ReLU6,
    "LeakyReLU": lambda: nn.LeakyReLU(0.125),
    "PReLU": lambda: nn.PReLU(6),
    "ELU": nn.ELU,
    "CELU": lambda: nn.CELU(0.5),
    "SELU": nn.SELU,
    "GELU": nn.GELU,
    "GELU by tanh": lambda: nn.GELU("tanh"),
    "SiLU": nn.SiLU,
    "Mish": nn.Mish,
    "Sigmoid": nn.Sigmoid,
    "LogSigmoid": nn.LogSigmoid,
    "Hardsigmoid": Hardsigmoid,
    "Hardswish": nn.Hardswish,
    "Tanh": nn.Tanh,
    "Hardtanh": lambda: nn.Hardtanh(-0.5, 2.0),
    "Softplus": lambda: nn.Softplus(0.5, threshold=1000.0),  # ours is exact for every x
    "Softsign": nn.Softsign,
    "Softmax": lambda: nn.Softmax(-1),
    "LogSoftmax": lambda: nn.LogSoftmax(-1),
    "Identity": nn.Identity,
}


def activation_cases():
    """Inputs reach beyond every kink; 6 is the farthest."""

    def activation_case(name, make, outer=6):
        scale = 8.0 if "6" in name or name.startswith("Hards") else 4.0
        return case(name, lambda: nn.Sequential(nn.Linear(5, 6), make(), nn.Linear(outer, 3)), of_x(),
                    [real("x", 9, 5, scale=scale), target(9, 3)])

    return [activation_case(name, make) for name, make in ACTIVATIONS.items()] + [activation_case("GLU", nn.GLU, 3)]


# ---- embedding --------------------------------------------------------------------------------------------------------


def embedding_case(name, padding):
    def step(model, inputs):
        output = model(inputs["tokens"])
        return output, mean_square(output, inputs)

    def make():
        return nn.Sequential(nn.Embedding(11, 6, padding_idx=padding), nn.Linear(6, 3))

    # 5 of 11 rows are never looked up.
    return case(name, make, step, [whole("tokens", 4, 5, below=6), target(4, 5, 3)])


def embedding_cases():
    return [embedding_case("Embedding", None), embedding_case("Embedding with padding", 2)]


# ---- normalisation ----------------------------------------------------------------------------------------------------


def norm_cases():
    def between(name, make, x=(9, 5), y=(9, 3)):
        return net(name, linear(5, 6), make, linear(6, 3), x=x, y=y)

    return [
        between("LayerNorm", lambda: nn.LayerNorm(6)),
        between("LayerNorm without bias", lambda: nn.LayerNorm(6, bias=False)),
        between("LayerNorm without parameters", lambda: nn.LayerNorm(6, elementwise_affine=False)),
        between("LayerNorm over two dims", lambda: nn.LayerNorm([4, 6], eps=1e-3), (3, 4, 5), (3, 4, 3)),
        between("RMSNorm", lambda: nn.RMSNorm(6, eps=1e-5)),
        between("RMSNorm without weight", lambda: nn.RMSNorm(6, eps=1e-3, elementwise_affine=False)),
        net("GroupNorm", lambda: nn.Conv2d(2, 6, 3), lambda: nn.GroupNorm(3, 6), lambda: nn.Conv2d(6, 2, 2),
            x=(2, 2, 6, 5), y=(2, 2, 3, 2)),
        between("GroupNorm of rows, without parameters", lambda: nn.GroupNorm(2, 6, affine=False)),
    ]


def batch_norm_cases():
    def rows(name, make):
        return net(name, linear(5, 6), make, linear(6, 3), x=(9, 5), y=(9, 3))

    return [
        rows("BatchNorm1d", lambda: nn.BatchNorm1d(6)),
        rows("BatchNorm1d, momentum 0.3, without parameters", lambda: nn.BatchNorm1d(6, 1e-3, 0.3, affine=False)),
        rows("BatchNorm1d, cumulative average", lambda: nn.BatchNorm1d(6, momentum=None)),
        rows("BatchNorm1d without statistics", lambda: nn.BatchNorm1d(6, track_running_stats=False)),
        net("BatchNorm1d of sequences", lambda: nn.Conv1d(3, 4, 3), lambda: nn.BatchNorm1d(4),
            lambda: nn.Conv1d(4, 2, 2), x=(5, 3, 7), y=(5, 2, 4)),
        net("BatchNorm2d", lambda: nn.Conv2d(2, 4, 3), lambda: nn.BatchNorm2d(4), nn.ReLU, lambda: nn.Conv2d(4, 2, 2),
            x=(3, 2, 6, 5), y=(3, 2, 3, 2)),
    ]


# ---- convolution and pooling ------------------------------------------------------------------------------------------


def conv_cases():
    return [
        alone("Conv1d", lambda: nn.Conv1d(3, 4, 3), (2, 3, 9), (2, 4, 7)),
        alone("Conv1d, stride 2, padding 2, dilation 2, groups 2, without bias",
              lambda: nn.Conv1d(4, 6, 3, 2, 2, 2, 2, False), (2, 4, 9), (2, 6, 5)),
        alone("Conv1d, same padding", lambda: nn.Conv1d(3, 4, 4, padding="same"), (2, 3, 7), (2, 4, 7)),
        alone("Conv2d", lambda: nn.Conv2d(2, 3, 3), (2, 2, 6, 5), (2, 3, 4, 3)),
        alone("Conv2d, stride 2, padding 1, groups 2", lambda: nn.Conv2d(4, 6, 3, 2, 1, 1, 2), (2, 4, 7, 6),
              (2, 6, 4, 3)),
        alone("Conv2d, every number of a pair different",
              lambda: nn.Conv2d(2, 3, (2, 3), (2, 1), (0, 2), (1, 2), bias=False), (2, 2, 6, 5), (2, 3, 3, 5)),
        alone("Conv2d, same padding, dilation", lambda: nn.Conv2d(2, 3, (2, 3), padding="same", dilation=(1, 2)),
              (2, 2, 5, 4), (2, 3, 5, 4)),
        alone("Conv2d of each channel by itself", lambda: nn.Conv2d(3, 3, 3, padding=1, groups=3), (2, 3, 5, 4),
              (2, 3, 5, 4)),
    ]


def pool_cases():
    def images(name, make, height, width):
        return net(name, lambda: nn.Conv2d(1, 2, 3), make, lambda: nn.Conv2d(2, 2, 1), x=(2, 1, 9, 8),
                   y=(2, 2, height, width))

    def sequences(name, make, length):
        return net(name, lambda: nn.Conv1d(2, 3, 3), make, lambda: nn.Conv1d(3, 2, 1), x=(2, 2, 11), y=(2, 2, length))

    return [
        sequences("MaxPool1d", lambda: nn.MaxPool1d(3, 2, 1), 5),
        sequences("AvgPool1d", lambda: nn.AvgPool1d(2), 4),
        sequences("AdaptiveMaxPool1d", lambda: nn.AdaptiveMaxPool1d(4), 4),
        sequences("AdaptiveAvgPool1d", lambda: nn.AdaptiveAvgPool1d(4), 4),
        images("MaxPool2d", lambda: nn.MaxPool2d(2), 3, 3),
        images("MaxPool2d, padding and dilation", lambda: nn.MaxPool2d(2, 1, 1, 2), 7, 6),
        images("AvgPool2d", lambda: nn.AvgPool2d((3, 2), 2, 1, count_include_pad=False), 4, 4),
        images("AdaptiveMaxPool2d", lambda: nn.AdaptiveMaxPool2d((3, 4)), 3, 4),
        images("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d((3, 4)), 3, 4),
        net("a small convolutional net", lambda: nn.Conv2d(1, 3, 3), lambda: nn.BatchNorm2d(3), nn.ReLU,
            lambda: nn.MaxPool2d(2), lambda: nn.Conv2d(3, 4, 2), nn.GELU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten,
            linear(4, 3), x=(4, 1, 9, 8), y=(4, 3)),
    ]


FILES = {
    "linear": linear_cases,
    "activation": activation_cases,
    "embedding": embedding_cases,
    "norm": norm_cases,
    "batch_norm": batch_norm_cases,
    "conv": conv_cases,
    "pool": pool_cases,
}
