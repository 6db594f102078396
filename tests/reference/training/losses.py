"""Cases of losses, on the output of one linear layer."""

import torch
import torch.nn.functional as F
from torch import nn

from training.cases import case, fixed, real, whole

WEIGHT = torch.tensor([0.5, 1.5, 1.0, 0.25])


def loss_case(name, function, *inputs):
    """function(output, inputs); four outputs."""

    def step(model, given):
        output = model(given["x"])
        return output, function(output, given)

    return case(name, lambda: nn.Linear(5, 4), step, [real("x", 9, 5), *inputs])


def of_target(function, **more):
    return lambda y, given: function(y, given["target"], **more)


def class_cases():
    classes = whole("classes", 9, below=4)
    weight = fixed("weight", WEIGHT)
    probabilities = real("target", 9, 4, offset=0.25, scale=0.125)

    def nll(output, given, **more):
        return F.nll_loss(F.log_softmax(output, -1), given["classes"], **more)

    return [
        loss_case("cross entropy", lambda y, given: F.cross_entropy(y, given["classes"]), classes),
        loss_case("cross entropy, weight, smoothing, a class ignored",
                  lambda y, given: F.cross_entropy(y, given["classes"], given["weight"], ignore_index=2,
                                                   label_smoothing=0.125), classes, weight),
        loss_case("cross entropy, sum", lambda y, given: F.cross_entropy(y, given["classes"], reduction="sum") / 8,
                  classes),
        loss_case("cross entropy of probabilities", of_target(F.cross_entropy), probabilities),
        loss_case("cross entropy of probabilities, weight, smoothing",
                  lambda y, given: F.cross_entropy(y, given["target"], given["weight"], label_smoothing=0.125),
                  probabilities, weight),
        loss_case("nll", nll, classes),
        loss_case("nll, weight, a class ignored",
                  lambda y, given: nll(y, given, weight=given["weight"], ignore_index=1), classes, weight),
    ]


def distance_cases():
    goal = real("target", 9, 4)
    return [
        loss_case("mse", of_target(F.mse_loss), goal),
        loss_case("mse, sum", lambda y, given: F.mse_loss(y, given["target"], reduction="sum") / 32, goal),
        loss_case("mse, none",
                  lambda y, given: (F.mse_loss(y, given["target"], reduction="none") ** 2).sum() / 32, goal),
        loss_case("l1", of_target(F.l1_loss), goal),
        loss_case("huber", of_target(F.huber_loss, delta=0.5), goal),
        loss_case("smooth l1", of_target(F.smooth_l1_loss, beta=0.25), goal),
    ]


def probability_cases():
    share = real("target", 9, 4, offset=0.5, scale=0.5)
    positive = real("target", 9, 4, offset=0.5, scale=0.375)
    weight = fixed("weight", WEIGHT)
    factor = fixed("factor", torch.tensor([[1.0], [0.5], [2.0]]).repeat(3, 1))

    def kl(y, given, **more):
        return F.kl_div(F.log_softmax(y, -1), given["target"], **more)

    return [
        loss_case("bce with logits", of_target(F.binary_cross_entropy_with_logits), share),
        loss_case("bce with logits, weights",
                  lambda y, given: F.binary_cross_entropy_with_logits(
                      y, given["target"], given["factor"], pos_weight=given["weight"]), share, weight, factor),
        loss_case("kl", kl, positive),
        loss_case("kl, mean of the batch", lambda y, given: kl(y, given, reduction="batchmean"), positive),
        loss_case("kl of logarithms", lambda y, given: kl(y, given, log_target=True), real("target", 9, 4)),
    ]


FILES = {"loss": lambda: class_cases() + distance_cases() + probability_cases()}
