// Losses: relations between them, derivatives against differences, extreme operands, dtypes, and
// every error.
#include <functional>
#include <limits>

#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/nn/training/likelihood_loss.h"
#include "tessera/nn/training/loss_modules.h"
#include "tessera/nn/training/margin_loss.h"
#include "tessera/tests/nn/loss_fixtures.h"

namespace tessera::testing {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST_CASE("nll takes targets of any shape, and is the cross entropy of log_softmax") {
  const Variable logits = leaf({2, 3, 5});
  const Tensor targets = Tensor::from_vector<std::int64_t>({4, -1, 0, 2, 2, -1}, {2, 3});
  const Tensor weight = irregular({5}, 0.5, 2);
  for (LossReduction r : {LossReduction::kNone, LossReduction::kSum, LossReduction::kMean}) {
    const Variable nll = nn::nll_loss(log_softmax(logits), targets,
                                      {.reduction = r, .ignore_index = -1, .weight = weight});
    const Variable fused =
        nn::cross_entropy(logits, targets, {.reduction = r, .ignore_index = -1, .weight = weight});
    check_near(values(nll.tensor()), values(fused.tensor()));
    check_near(values(gradient_of(nll, logits)), values(gradient_of(fused, logits)));
  }
  const Variable one = nn::nll_loss(constant({-1, -2}, {2}), cast(Tensor::scalar(1), DType::kI32));
  CHECK(one.item<double>() == 2);
}

TEST_CASE("the cross entropy of one-hot probabilities is that of their indices") {
  const Variable logits = leaf({4, 3});
  const Tensor targets = Tensor::from_vector<std::int64_t>({2, 0, 1, 1}, {4});
  const Variable soft = nn::cross_entropy(logits, Variable(one_hot(targets, 3, DType::kF64)),
                                          {.label_smoothing = 0.3});
  const Variable hard = nn::cross_entropy(logits, targets, {.label_smoothing = 0.3});
  check_near({soft.item<double>()}, {hard.item<double>()});
  check_near(values(gradient_of(soft, logits)), values(gradient_of(hard, logits)));
}

TEST_CASE("a tensor as input or target of a loss is a constant") {
  const Variable x = leaf({4, 3});
  const Tensor t = irregular({4, 3}, 0.1, 0.9), other = irregular({4, 3}, 0.5, 2);
  const Tensor sign = Tensor::from_vector<double>({1, -1, 1, 1}, {4});
  const std::vector<std::pair<Variable, Variable>> pairs = {
      {nn::mse_loss(x, t), nn::mse_loss(x, Variable(t))},
      {nn::l1_loss(x, t), nn::l1_loss(x, Variable(t))},
      {nn::huber_loss(x, t), nn::huber_loss(x, Variable(t))},
      {nn::smooth_l1_loss(x, t), nn::smooth_l1_loss(x, Variable(t))},
      {nn::bce_with_logits_loss(x, t), nn::bce_with_logits_loss(x, Variable(t))},
      {nn::kl_div(x, t), nn::kl_div(x, Variable(t))},
      {nn::binary_cross_entropy(sigmoid(x), t), nn::binary_cross_entropy(sigmoid(x), Variable(t))},
      {nn::poisson_nll_loss(x, t), nn::poisson_nll_loss(x, Variable(t))},
      {nn::gaussian_nll_loss(x, t, other), nn::gaussian_nll_loss(x, Variable(t), Variable(other))},
      {nn::hinge_embedding_loss(x, t), nn::hinge_embedding_loss(x, Variable(t))},
      {nn::soft_margin_loss(x, t), nn::soft_margin_loss(x, Variable(t))},
      {nn::multilabel_soft_margin_loss(x, t), nn::multilabel_soft_margin_loss(x, Variable(t))},
      {nn::margin_ranking_loss(x, other, t),
       nn::margin_ranking_loss(x, Variable(other), Variable(t))},
      {nn::cosine_embedding_loss(x, other, sign),
       nn::cosine_embedding_loss(x, Variable(other), Variable(sign))},
      {nn::triplet_margin_loss(x, t, other),
       nn::triplet_margin_loss(x, Variable(t), Variable(other))},
      {nn::MSELoss()(x, t), nn::mse_loss(x, Variable(t))},
  };
  for (const auto& [with_tensor, with_variable] : pairs) {
    CHECK(with_tensor.item<double>() == with_variable.item<double>());
    check_near(values(gradient_of(with_tensor, x)), values(gradient_of(with_variable, x)));
  }
  const Variable evaluated = nn::mse_loss(t, other);
  CHECK_FALSE(evaluated.requires_grad());
  CHECK(evaluated.item<double>() == nn::mse_loss(Variable(t), Variable(other)).item<double>());
}

TEST_CASE("derivatives of losses, for inputs and targets, twice") {
  using Inputs = std::vector<Variable>;
  const std::vector<std::function<Variable(const Inputs&, LossReduction)>> losses = {
      [](const Inputs& in, LossReduction r) { return nn::mse_loss(in[0], in[1], r); },
      [](const Inputs& in, LossReduction r) { return nn::l1_loss(in[0], in[1], r); },
      [](const Inputs& in, LossReduction r) {
        return nn::huber_loss(in[0], in[1], {.reduction = r, .delta = 0.6});
      },
      [](const Inputs& in, LossReduction r) {
        return nn::smooth_l1_loss(in[0], in[1], {.reduction = r, .beta = 0.6});
      },
      [](const Inputs& in, LossReduction r) {
        return nn::bce_with_logits_loss(in[0], in[1],
                                        {.reduction = r, .pos_weight = f64({2.5}, {})});
      },
      [](const Inputs& in, LossReduction r) { return nn::kl_div(in[0], in[1], {.reduction = r}); },
      [](const Inputs& in, LossReduction r) {
        return nn::kl_div(in[0], in[1], {.reduction = r, .log_target = true});
      },
      [](const Inputs& in, LossReduction r) {
        return nn::cross_entropy(in[0], in[1], {.reduction = r, .label_smoothing = 0.1});
      },
      [](const Inputs& in, LossReduction r) {
        return nn::nll_loss(mul(in[0], in[1]), Tensor::from_vector<std::int64_t>({1, -100}, {2}),
                            {.reduction = r});
      },
  };
  for (std::size_t i = 0; i < losses.size(); ++i) {
    for (LossReduction r : {LossReduction::kNone, LossReduction::kMean}) {
      INFO("loss " << i);
      const auto function = [&](const Inputs& in) { return losses[i](in, r); };
      const Inputs inputs = {leaf({2, 3}), leaf({2, 3}, 0.1, 0.9, 0.45)};
      const GradCheckResult once = grad_check(function, inputs);
      INFO(once.message);
      CHECK(once.passed);
      const GradCheckResult twice = grad_grad_check(function, inputs);
      INFO(twice.message);
      CHECK(twice.passed);
    }
  }
}

TEST_CASE("huber losses have their second derivative where input and target are equal") {
  const Variable x(f64({0.5, 2}, {2}), true), t = constant({0.5, 0}, {2});
  const Variable loss = nn::smooth_l1_loss(x, t, {.reduction = LossReduction::kSum, .beta = 0.5});
  const Variable first = grad({&loss, 1}, {&x, 1}, {.create_graph = true})[0];
  check_near(values(gradient_of(first, x)), {2, 0});
}

TEST_CASE("extreme operands give no NaN, and lose nothing") {
  const Variable x(f64({1000, -1000, -1000, 1000, -40, 40}, {6}), true);
  const Variable t = constant({1, 0, 1, 0, 0, 1}, {6});
  const Variable bce = nn::bce_with_logits_loss(x, t, {.reduction = LossReduction::kNone});
  const Doubles losses = values(bce.tensor());
  check_near(losses, {0, 0, 1000, 1000, 0, 0});
  for (std::size_t i : {4u, 5u}) CHECK(std::abs(losses[i] / std::exp(-40) - 1) < 1e-14);
  check_near(values(gradient_of(bce, x)), {0, 0, -1, 1, 0, 0});

  const Variable far(f64({kInf, -kInf, 1e300}, {3}), true), zero = constant({0, 0, 0}, {3});
  const Variable huber = nn::huber_loss(far, zero, {.reduction = LossReduction::kNone});
  check_near(values(huber.tensor()), {kInf, kInf, 1e300});
  check_near(values(gradient_of(huber, far)), {1, -1, 1});

  const Variable never(f64({0, 1}, {2}), true), logs = constant({-1e300, 0}, {2});
  const Variable kl = nn::kl_div(logs, never, {.reduction = LossReduction::kNone});
  check_near(values(kl.tensor()), {0, 0});
  check_near(values(gradient_of(kl, never)), {1e300, 1});
  const Variable log_never(f64({-kInf, 0}, {2}), true);
  const Variable log_kl = nn::kl_div(constant({-1, -2}, {2}), log_never,
                                     {.reduction = LossReduction::kNone, .log_target = true});
  check_near(values(log_kl.tensor()), {0, 2});
  check_near(values(gradient_of(log_kl, log_never)), {0, 3});

  // An ignored row may hold anything; large logits stay exact.
  const Variable rows(f64({-kInf, 0, 1000, -1000}, {2, 2}), true);
  const Tensor targets = Tensor::from_vector<std::int64_t>({-100, 1}, {2});
  const Variable nll = nn::nll_loss(rows, targets);
  CHECK(nll.item<double>() == 1000);
  check_near(values(gradient_of(nll, rows)), {0, 0, 0, -1});
  const Variable soft =
      nn::cross_entropy(constant({1000, -1000}, {1, 2}), constant({0.5, 0.5}, {1, 2}));
  CHECK(soft.item<double>() == 1000);
}

TEST_CASE("the mean of nothing is NaN, its sum 0") {
  const Variable none(zeros({0, 3}, {.dtype = DType::kF64}), true);
  CHECK(std::isnan(nn::mse_loss(none, none).item<double>()));
  CHECK(nn::l1_loss(none, none, LossReduction::kSum).item<double>() == 0);
  CHECK(nn::mse_loss(none, none, LossReduction::kNone).shape() == Shape{0, 3});
  const Tensor no_targets = Tensor::from_vector<std::int64_t>({}, {0});
  CHECK(nn::nll_loss(none, no_targets, {.reduction = LossReduction::kSum}).item<double>() == 0);
  CHECK(std::isnan(nn::nll_loss(none, no_targets).item<double>()));
  const Tensor ignored = Tensor::from_vector<std::int64_t>({-100}, {1});
  CHECK(std::isnan(nn::nll_loss(constant({-1, -1}, {1, 2}), ignored).item<double>()));
  CHECK(nn::cross_entropy(none, none, {.reduction = LossReduction::kSum}).item<double>() == 0);
  const Variable gradient(gradient_of(nn::mse_loss(none, none, LossReduction::kSum), none));
  CHECK(gradient.shape() == Shape{0, 3});
}

TEST_CASE("losses of 16 bits are computed and returned in f32, also under autocast") {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensor x = cast(irregular({37}, -3, 3), dtype),
                 t = cast(irregular({37}, 0, 1, 0.4), dtype);
    const Variable narrow(x, true), target(t), wide(cast(x, DType::kF32), true),
        wide_target(cast(t, DType::kF32));
    const auto losses = [](const Variable& a, const Variable& b) {
      return std::vector<Variable>{nn::mse_loss(a, b),
                                   nn::l1_loss(a, b),
                                   nn::huber_loss(a, b),
                                   nn::bce_with_logits_loss(a, b),
                                   nn::kl_div(a, b),
                                   nn::cross_entropy(a, b),
                                   nn::nll_loss(a, Tensor::scalar(3, {.dtype = DType::kI64}))};
    };
    const std::vector<Variable> rounded = losses(narrow, target), exact = losses(wide, wide_target);
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      INFO("loss " << i);
      CHECK(rounded[i].dtype() == DType::kF32);
      CHECK(values(cast(rounded[i].tensor(), DType::kF64)) ==
            values(cast(exact[i].tensor(), DType::kF64)));
      CHECK(gradient_of(rounded[i], narrow).dtype() == dtype);
    }
    const AutocastGuard autocast(dtype);
    for (const Variable& loss : losses(narrow, target)) CHECK(loss.dtype() == DType::kF32);
  }
  CHECK(nn::mse_loss(Variable(ones({2})), leaf({2})).dtype() == DType::kF64);
}

TEST_CASE("losses run on the null device") {
  const TensorOptions null{.device = kNull};
  const Variable x(Tensor::empty({4, 3}, null), true), t(Tensor::empty({4, 3}, null));
  const Tensor classes = Tensor::empty({4}, {.dtype = DType::kI64, .device = kNull});
  const Tensor weight = Tensor::empty({3}, null);
  const std::vector<Variable> losses = {
      nn::mse_loss(x, t),
      nn::l1_loss(x, t),
      nn::huber_loss(x, t),
      nn::smooth_l1_loss(x, t),
      nn::bce_with_logits_loss(x, t, {.weight = weight, .pos_weight = weight}),
      nn::kl_div(x, t),
      nn::kl_div(x, t, {.log_target = true}),
      nn::nll_loss(x, classes, {.weight = weight}),
      nn::cross_entropy(x, t, {.weight = weight})};
  for (const Variable& loss : losses) {
    CHECK(loss.shape() == Shape{});
    CHECK(gradient_of(loss, x).shape() == Shape{4, 3});
  }
}

TEST_CASE("losses name what does not fit") {
  const Variable x(zeros({2, 3})), y(zeros({3})), whole(zeros({2, 3}, {.dtype = DType::kI64}));
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const std::string shapes =
      " input has shape [2, 3] and target [3]; reshape or expand one of them";
  CHECK(text([&] { nn::mse_loss(x, y); }) == "[nn.mse_loss]" + shapes);
  CHECK(text([&] { nn::l1_loss(x, y); }) == "[nn.l1_loss]" + shapes);
  CHECK(text([&] { nn::huber_loss(x, y); }) == "[nn.huber_loss]" + shapes);
  CHECK(text([&] { nn::smooth_l1_loss(x, y); }) == "[nn.smooth_l1_loss]" + shapes);
  CHECK(text([&] { nn::bce_with_logits_loss(x, y); }) == "[nn.bce_with_logits_loss]" + shapes);
  CHECK(text([&] { nn::kl_div(x, y); }) == "[nn.kl_div]" + shapes);
  CHECK(text([&] { nn::cross_entropy(x, y); }) == "[nn.cross_entropy]" + shapes);
  CHECK(text([&] { nn::mse_loss(x, whole); }) ==
        "[nn.mse_loss] input is f32 and target i64; losses take floating dtypes");
  CHECK(text([&] { nn::nll_loss(whole, zeros({2}, {.dtype = DType::kI64})); }) ==
        "[nn.nll_loss] input is i64; losses take floating dtypes");
  CHECK(text([&] { nn::huber_loss(x, x, {.delta = 0}); }) ==
        "[nn.huber_loss] delta is 0; it is above 0");
  CHECK(text([&] { nn::smooth_l1_loss(x, x, {.beta = -1}); }) ==
        "[nn.smooth_l1_loss] beta is -1; it is at least 0");
  CHECK(text([&] { nn::bce_with_logits_loss(x, x, {.weight = zeros({2})}); }) ==
        "[nn.bce_with_logits_loss] weight is f32 of shape [2]; it is floating and expands to the "
        "input's, [2, 3]");
  CHECK(
      text([&] {
        nn::bce_with_logits_loss(x, x, {.pos_weight = zeros({1, 2, 3})});
      }) ==
      "[nn.bce_with_logits_loss] pos_weight is f32 of shape [1, 2, 3]; it is floating and expands "
      "to the input's, [2, 3]");
}

TEST_CASE("class losses name what does not fit") {
  const Variable x(zeros({2, 3}));
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const Tensor right = zeros({2}, {.dtype = DType::kI64});
  const std::string targets =
      "[nn.nll_loss] log probabilities of shape [2, 3] take i64 or i32 targets of the shape "
      "without "
      "the last dim, got ";
  CHECK(text([&] { nn::nll_loss(x, zeros({3}, {.dtype = DType::kI64})); }) ==
        targets + "i64 of shape [3]");
  CHECK(text([&] { nn::nll_loss(x, zeros({2})); }) == targets + "f32 of shape [2]");
  CHECK(text([&] { nn::nll_loss(x, Tensor()); }) == targets + "nothing of shape []");
  CHECK(text([&] { nn::nll_loss(x, right, {.weight = zeros({2})}); }) ==
        "[nn.nll_loss] weight is f32 of shape [2]; it is floating, one for each of 3 classes");
  CHECK(text([&] {
          nn::nll_loss(x, full({2}, 3, {.dtype = DType::kI64})).item<float>();
        }).find("index 3") != std::string::npos);
  CHECK(text([&] { nn::cross_entropy(x, x, {.label_smoothing = 1.5}); }) ==
        "[nn.cross_entropy] label_smoothing is 1.5; it is between 0 and 1");
  CHECK(text([&] { nn::cross_entropy(x, sum(x, 1)); }) ==
        "[nn.cross_entropy] targets of shape [2] are f32: class indices are integers, "
        "cast(targets, DType::kI64); probabilities have the shape of the logits, [2, 3]");
  CHECK(text([&] { nn::cross_entropy(x, x, {.ignore_index = 1}); }) ==
        "[nn.cross_entropy] ignore_index 1 means class indices, and the targets are probabilities; "
        "give rows that shall not count a target of zeros");
  CHECK(text([&] { cross_entropy(x, Variable(right)); }) ==
        "[nn.cross_entropy] a variable of i64 as targets: class indices are a Tensor, "
        "targets.tensor()");
  CHECK(text([&] { nn::cross_entropy(Variable(ones({})), Variable(ones({}))); }) ==
        "[nn.cross_entropy] logits are 0-d; the last dim counts classes");
  CHECK(text([&] { nn::cross_entropy(x, x, {.weight = zeros({3}, {.dtype = DType::kI64})}); }) ==
        "[nn.cross_entropy] weight is i64 of shape [3]; it is floating, one for each of 3 "
        "classes");
  CHECK(text([&] {
          nn::mse_loss(x, Variable(Tensor::empty({2, 3}, {.device = kNull})));
        }).find("null") != std::string::npos);
}

TEST_CASE("global_mean on one rank is the mean") {
  const Variable x(f64({1, 2, 6}, {3}), true);
  const Variable loss = nn::global_mean(sum(x), 3, nn::local_mesh());
  CHECK(std::abs(loss.item<double>() - 3) < 1e-15);
  backward(loss);
  for (double g : values(x.grad())) CHECK(std::abs(g - 1.0 / 3) < 1e-15);
}

TEST_CASE("global_mean scales by ranks over the global count, with one all-reduce of the counts") {
  const auto mesh = std::make_shared<FakeMesh>(std::vector<std::string>{"data"}, 4);
  mesh->others = 7;  // samples on the other three ranks
  const Variable sum_f32(Tensor::scalar(5), true);
  const Variable loss = nn::global_mean(sum_f32, 3, mesh);
  CHECK(loss.dtype() == DType::kF32);
  CHECK(loss.item<float>() == 2.0f);  // 5 * 4 / 10
  CHECK(mesh->reduced == std::vector<std::string>{"data[]"});
  backward(loss);
  CHECK(sum_f32.grad().item<float>() == 0.4f);
  CHECK(nn::global_mean(Variable(Tensor::scalar(0)), 0, mesh).item<float>() == 0.0f);
}

TEST_CASE("global_mean refuses a loss that is not summed, a negative count and an unknown axis") {
  CHECK(thrown<InvalidArgument>([] {
          nn::global_mean(Variable(ones({2})), 2, nn::local_mesh());
        }) == "[nn.global_mean] expected a loss of one element, got shape [2]: sum it first");
  CHECK(thrown<InvalidArgument>([] { nn::global_mean(Variable(ones({})), 1, nullptr); }) ==
        "[nn.global_mean] it needs a mesh: that of a world is world.mesh()");
  CHECK(thrown<InvalidArgument>([] {
          nn::global_mean(Variable(ones({})), -1, nn::local_mesh());
        }) == "[nn.global_mean] local_count is -1");
  CHECK(thrown<InvalidArgument>([] {
          nn::global_mean(Variable(ones({})), 1, nn::local_mesh(), "model");
        }).find("unknown axis \"model\"") != std::string::npos);
}

}  // namespace tessera::testing
