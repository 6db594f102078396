// Losses with margins and of distributions: values and gradients as PyTorch's, derivatives against differences, extreme
// operands, dtypes, errors; every loss as a module.
#include <functional>

#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/nn/training/likelihood_loss.h"
#include "tessera/nn/training/loss_modules.h"
#include "tessera/nn/training/margin_loss.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/loss_fixtures.h"

namespace tessera::testing {

using Inputs = std::vector<Variable>;

Tensor signs(const Shape& shape) {
  std::vector<double> out;
  for (double s : {1, -1, 1, -1, -1, 1, 1, 1, -1, -1, 1, -1}) out.push_back(s);
  return Tensor::from_vector(out, shape);
}

// The operands of the cases below: three matrices of waves, probabilities and so on.
struct Operands {
  Variable a{waves({4, 3}, 0.5, 1), true}, b{waves({4, 3}, 1.5, 1.5), true},
      c{waves({4, 3}, 2.5, 2), true};
  Variable p{sigmoid(a.tensor()), true}, t{sigmoid(b.tensor()), true};
  Variable var{add(square(c.tensor()), 0.3), true};
  Variable row_var{Tensor::from_vector<double>({0, 0.1, 0.2, 0.3}, {4, 1}), true};
  Variable sign{signs({4, 3})};
  Variable row_sign{Tensor::from_vector<double>({1, -1, -1, 1}, {4})};
  Variable counts{Tensor::from_vector<double>({0, 1, 2, 3, 4, 0.5, 1, 2, 7, 0, 3, 1.5}, {4, 3})};
  Tensor classes = Tensor::from_vector<std::int64_t>({2, 0, 1, 1}, {4});
  Tensor lists = Tensor::from_vector<std::int64_t>({2, 0, -1, 1, -1, 0, -1, 1, 2, 0, 0, 2}, {4, 3});
  Tensor weight = Tensor::from_vector<double>({0.5, 2, 1.25}, {3});
  Variable yes{cast(gt(sign.tensor(), 0), DType::kF64)};
};

struct LossCase {
  const char* name;
  std::function<Variable(const Operands&, LossReduction)> loss;
  std::function<Inputs(const Operands&)> inputs;
  std::vector<double> expected;  // weighed values, mean, sum, weighed gradients
};

const std::vector<LossCase>& margin_cases() {
  using O = const Operands&;
  static const std::vector<LossCase> all = {
      {"margin_ranking",
       [](O o, LossReduction r) {
         return nn::margin_ranking_loss(o.a, o.b, o.sign, {.reduction = r, .margin = 0.3});
       },
       [](O o) {
         return Inputs{o.a, o.b};
       },
       {0.6176162174308378, 0.6266255237894721, 7.519506285473665, 0.11891067382917808,
        -0.11891067382917808}},
      {"hinge_embedding",
       [](O o, LossReduction r) {
         return nn::hinge_embedding_loss(o.a, o.sign, {.reduction = r, .margin = 0.7});
       },
       [](O o) { return Inputs{o.a}; },
       {0.48446499344444094, 0.1637107365078009, 1.964528838093611, 1.0939601288519998}},
      {"cosine_embedding",
       [](O o, LossReduction r) {
         return nn::cosine_embedding_loss(o.a, o.b, o.row_sign, {.reduction = r, .margin = 0.2});
       },
       [](O o) {
         return Inputs{o.a, o.b};
       },
       {0.6864422000185039, 0.19826027735232246, 0.7930411094092898, -1.177988189324218,
        0.626343511473202}},
      {"triplet_margin",
       [](O o, LossReduction r) {
         return nn::triplet_margin_loss(o.a, o.b, o.c, {.reduction = r, .margin = 2.5});
       },
       [](O o) {
         return Inputs{o.a, o.b, o.c};
       },
       {3.2908835035261568, 0.9494105341213444, 3.7976421364853774, -0.5554436342541522,
        -1.0224074800071143, 1.5778511142612666}},
      {"triplet_margin, swapped",
       [](O o, LossReduction r) {
         return nn::triplet_margin_loss(o.a, o.b, o.c,
                                        {.reduction = r, .margin = 2, .p = 3, .swap = true});
       },
       [](O o) {
         return Inputs{o.a, o.b, o.c};
       },
       {4.918216800787974, 1.4155951283935049, 5.6623805135740195, 0.8637140743228221,
        -2.138945180173393, 1.2752311058505712}},
  };
  return all;
}

const std::vector<LossCase>& distance_cases() {
  using O = const Operands&;
  static const std::vector<LossCase> all = {
      {"triplet_margin_with_distance",
       [](O o, LossReduction r) {
         const auto distance = [](const Variable& a, const Variable& b) {
           return sum(abs(sub(a, b)), {-1});
         };
         return nn::triplet_margin_with_distance_loss(
             o.a, o.b, o.c, {.reduction = r, .distance = distance, .margin = 1.5, .swap = true});
       },
       [](O o) {
         return Inputs{o.a, o.b, o.c};
       },
       {2.012602115003099, 0.5264193964112931, 2.1056775856451724, -0.12240277466177485,
        -3.5307117691440757, 3.6531145438058505}},
  };
  return all;
}

const std::vector<LossCase>& class_margin_cases() {
  using O = const Operands&;
  static const std::vector<LossCase> all = {
      {"soft_margin",
       [](O o, LossReduction r) { return nn::soft_margin_loss(o.a, o.sign, r); },
       [](O o) { return Inputs{o.a}; },
       {-0.9097238045712692, 0.8716141947497652, 10.459370336997182, 1.349327191080274}},
      {"multi_margin",
       [](O o, LossReduction r) {
         return nn::multi_margin_loss(o.a, o.classes, {.reduction = r, .margin = 0.6});
       },
       [](O o) { return Inputs{o.a}; },
       {0.8269782604458024, 0.2534293013951069, 1.0137172055804275, 0.13228526944065466}},
      {"multi_margin, squared",
       [](O o, LossReduction r) {
         return nn::multi_margin_loss(o.a, o.classes, {.reduction = r, .p = 2, .weight = o.weight});
       },
       [](O o) { return Inputs{o.a}; },
       {2.8058400758532915, 0.8756101469109696, 3.5024405876438784, 0.028184621970978152}},
      {"multilabel_margin",
       [](O o, LossReduction r) { return nn::multilabel_margin_loss(o.a, o.lists, r); },
       [](O o) { return Inputs{o.a}; },
       {2.2782944808913896, 0.6997987901508412, 2.799195160603365, -0.01798837524788477}},
      {"multilabel_soft_margin",
       [](O o, LossReduction r) {
         return nn::multilabel_soft_margin_loss(o.a, o.yes, {.reduction = r, .weight = o.weight});
       },
       [](O o) { return Inputs{o.a}; },
       {3.6535007419733323, 1.0654460884401966, 4.2617843537607865, 0.4170659019177268}},
  };
  return all;
}

const std::vector<LossCase>& likelihood_cases() {
  using O = const Operands&;
  static const std::vector<LossCase> all = {
      {"binary_cross_entropy",
       [](O o, LossReduction r) {
         return nn::binary_cross_entropy(o.p, o.t, {.reduction = r, .weight = o.weight});
       },
       [](O o) {
         return Inputs{o.p, o.t};
       },
       {-0.9583182267980519, 0.8129656816148866, 9.75558817937864, -1.1777946085377191,
        -5.443874951523879}},
      {"gaussian_nll",
       [](O o, LossReduction r) {
         return nn::gaussian_nll_loss(o.a, o.b, o.var, {.reduction = r, .full = true});
       },
       [](O o) {
         return Inputs{o.a, o.b, o.var};
       },
       {-0.6703911912653642, 1.3065286131607374, 15.67834335792885, -2.3239376883696314,
        2.3239376883696314, 2.9517153750880887}},
      {"gaussian_nll, a variance for each row",
       [](O o, LossReduction r) {
         return nn::gaussian_nll_loss(o.a, o.b, o.row_var, {.reduction = r, .eps = 0.15});
       },
       [](O o) {
         return Inputs{o.a, o.b, o.row_var};
       },
       {2.319676632473224, 1.238138231867283, 14.857658782407395, -8.026271443575629,
        8.026271443575629, -33.045573790811346}},
      {"poisson_nll",
       [](O o, LossReduction r) {
         return nn::poisson_nll_loss(o.a, o.counts, {.reduction = r, .full = true});
       },
       [](O o) { return Inputs{o.a}; },
       {-6.649369894462659, 2.592789754571403, 31.113477054856837, 0.6485196513227082}},
      {"poisson_nll of expectations",
       [](O o, LossReduction r) {
         return nn::poisson_nll_loss(o.p, o.counts,
                                     {.reduction = r, .log_input = false, .eps = 0.01});
       },
       [](O o) { return Inputs{o.p}; },
       {-4.051725023156549, 1.8951869689120668, 22.742243626944802, -15.309119577314657}},
  };
  return all;
}

void check_case(const LossCase& c) {
  INFO(c.name);
  const Operands operands;
  const Variable each = weigh(c.loss(operands, LossReduction::kNone));
  std::vector<double> got = {each.item<double>(),
                             c.loss(operands, LossReduction::kMean).item<double>(),
                             c.loss(operands, LossReduction::kSum).item<double>()};
  const Inputs inputs = c.inputs(operands);
  for (const Variable& g : grad({&each, 1}, inputs)) got.push_back(weigh(g).item<double>());
  check_close(got, c.expected, 1e-11);
}

TEST_CASE("losses with a margin, and of distributions, are PyTorch's") {
  for (const LossCase& c : margin_cases()) check_case(c);
  for (const LossCase& c : distance_cases()) check_case(c);
  for (const LossCase& c : class_margin_cases()) check_case(c);
  for (const LossCase& c : likelihood_cases()) check_case(c);
}

// No distance, but smooth.
Variable triple_product(const Variable& a, const Variable& b) {
  return sum(mul(mul(a, b), b), {-1});
}

TEST_CASE("more losses: derivatives against differences, twice") {
  const std::vector<std::function<Variable(const Inputs&)>> losses = {
      [](const Inputs& in) { return nn::margin_ranking_loss(in[0], in[1], in[2]); },
      [](const Inputs& in) {
        return nn::cosine_embedding_loss(in[0], in[1], constant({1, -1}, {2}));
      },
      [](const Inputs& in) {
        return nn::triplet_margin_loss(in[0], in[1], in[2], {.margin = 5, .swap = true});
      },
      [](const Inputs& in) { return nn::soft_margin_loss(in[0], in[1]); },
      [](const Inputs& in) {
        return nn::multi_margin_loss(in[0], Tensor::from_vector<std::int32_t>({1, 0}, {2}),
                                     {.reduction = LossReduction::kNone, .p = 2});
      },
      [](const Inputs& in) { return nn::multilabel_soft_margin_loss(in[0], in[1]); },
      [](const Inputs& in) {
        return nn::multilabel_margin_loss(
            in[0], Tensor::from_vector<std::int32_t>({1, -1, 0, 2, 0, -1}, {2, 3}));
      },
      [](const Inputs& in) {
        return nn::triplet_margin_with_distance_loss(in[0], in[1], in[2],
                                                     {.distance = triple_product, .margin = 5});
      },
      [](const Inputs& in) { return nn::binary_cross_entropy(in[0], in[1]); },
      [](const Inputs& in) { return nn::gaussian_nll_loss(in[0], in[1], in[2]); },
      [](const Inputs& in) { return nn::poisson_nll_loss(in[0], add(in[1], 1), {.full = true}); },
      [](const Inputs& in) { return nn::poisson_nll_loss(in[0], in[1], {.log_input = false}); },
  };
  for (std::size_t i = 0; i < losses.size(); ++i) {
    INFO("loss " << i);
    const Inputs inputs = {leaf({2, 3}, 0.1, 0.9), leaf({2, 3}, 0.1, 0.9, 0.45),
                           leaf({2, 3}, 0.2, 0.8, 0.7)};
    const GradCheckResult once = grad_check(losses[i], inputs);
    INFO(once.message);
    CHECK(once.passed);
    const GradCheckResult twice = grad_grad_check(losses[i], inputs);
    INFO(twice.message);
    CHECK(twice.passed);
  }
}

TEST_CASE("more losses at the ends of their operands") {
  const Variable p(f64({0, 1, 0, 1}, {4}), true), t(f64({0, 1, 1, 0}, {4}), true);
  const Variable bce = nn::binary_cross_entropy(p, t, {.reduction = LossReduction::kNone});
  check_near(values(bce.tensor()), {0, 0, 100, 100});
  backward(sum(bce));
  check_near(values(p.grad()), {0, 0, -1e12, 1e12});  // PyTorch's numbers
  check_near(values(t.grad()), {100, -100, 100, -100});
  const Variable far(f64({1000, -1000}, {2}), true);
  const Variable soft = nn::soft_margin_loss(far, constant({-1, -1}, {2}), LossReduction::kNone);
  check_near(values(soft.tensor()), {1000, 0});
  const Variable same(f64({1, 2}, {2}), true), zero(f64({0, 0}, {2}), true);
  const Variable triplet = nn::triplet_margin_loss(same, same, same);
  CHECK(std::abs(triplet.item<double>() - 1) < 1e-12);
  const Variable cosine = nn::cosine_embedding_loss(zero, same, constant({1}, {}));
  CHECK(cosine.item<double>() == 1);
  for (const Variable& loss : {triplet, cosine}) {
    for (double g : values(gradient_of(loss, same))) CHECK(std::isfinite(g));
  }
  const Variable none(zeros({0, 3}, {.dtype = DType::kF64}), true);
  CHECK(std::isnan(nn::binary_cross_entropy(none, none).item<double>()));
  CHECK(
      nn::gaussian_nll_loss(none, none, none, {.reduction = LossReduction::kSum}).item<double>() ==
      0);
  CHECK(nn::triplet_margin_loss(none, none, none, {.reduction = LossReduction::kNone}).shape() ==
        Shape{0});
  const Variable flat = nn::gaussian_nll_loss(same, same, constant({4}, {}));
  CHECK(std::abs(flat.item<double>() - std::log(2)) < 1e-12);
  CHECK(nn::multi_margin_loss(same, Tensor::scalar(1, {.dtype = DType::kI64})).item<double>() == 0);
}

TEST_CASE("more losses compute and return 16 bits in f32, and run on the null device") {
  const auto losses = [](const Variable& a, const Variable& b) {
    const Tensor classes = Tensor::empty({2}, {.dtype = DType::kI64, .device = a.device()});
    fill_(classes, 1);
    const Tensor lists = classes.unsqueeze(1).expand({2, 5});
    const Variable rows = sum(b, {-1});
    return std::vector<Variable>{nn::margin_ranking_loss(a, b, b),
                                 nn::hinge_embedding_loss(a, b),
                                 nn::cosine_embedding_loss(a, b, rows),
                                 nn::triplet_margin_loss(a, b, b),
                                 nn::soft_margin_loss(a, b),
                                 nn::multi_margin_loss(a, classes),
                                 nn::multilabel_soft_margin_loss(a, b),
                                 nn::multilabel_margin_loss(a, lists),
                                 nn::triplet_margin_with_distance_loss(a, b, b),
                                 nn::binary_cross_entropy(a, b),
                                 nn::gaussian_nll_loss(a, b, a),
                                 nn::poisson_nll_loss(a, b)};
  };
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensor x = cast(irregular({2, 5}, 0.1, 0.9), dtype), y = ones({2, 5}, {.dtype = dtype});
    const std::vector<Variable> rounded = losses(Variable(x, true), Variable(y)),
                                exact = losses(Variable(cast(x, DType::kF32)),
                                               Variable(cast(y, DType::kF32)));
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      INFO("loss " << i);
      CHECK(rounded[i].dtype() == DType::kF32);
      CHECK(values(cast(rounded[i].tensor(), DType::kF64)) ==
            values(cast(exact[i].tensor(), DType::kF64)));
    }
    const AutocastGuard autocast(dtype);
    for (const Variable& loss : losses(Variable(x), Variable(y)))
      CHECK(loss.dtype() == DType::kF32);
  }
  const Variable planned(Tensor::empty({2, 5}, {.device = kNull}), true);
  for (const Variable& loss : losses(planned, planned))
    CHECK(gradient_of(loss, planned).shape() == Shape{2, 5});
}

TEST_CASE("losses as modules are the functions with their options") {
  const Operands o;
  const auto same = [](const Variable& a, const Variable& b) {
    CHECK(values(a.tensor()) == values(b.tensor()));
  };
  const LossReduction sums = LossReduction::kSum;
  same(nn::MSELoss()(o.a, o.b), nn::mse_loss(o.a, o.b));
  same(nn::L1Loss({.reduction = sums})(o.a, o.b), nn::l1_loss(o.a, o.b, sums));
  same(nn::HuberLoss({.delta = 0.5})(o.a, o.b), nn::huber_loss(o.a, o.b, {.delta = 0.5}));
  same(nn::SmoothL1Loss({.beta = 0.5})(o.a, o.b), nn::smooth_l1_loss(o.a, o.b, {.beta = 0.5}));
  same(nn::BCELoss({.weight = o.weight})(o.p, o.t),
       nn::binary_cross_entropy(o.p, o.t, {.weight = o.weight}));
  same(nn::BCEWithLogitsLoss({.pos_weight = o.weight})(o.a, o.t),
       nn::bce_with_logits_loss(o.a, o.t, {.pos_weight = o.weight}));
  same(nn::KLDivLoss({.log_target = true})(o.a, o.b), nn::kl_div(o.a, o.b, {.log_target = true}));
  same(nn::PoissonNLLLoss({.full = true})(o.a, o.t),
       nn::poisson_nll_loss(o.a, o.t, {.full = true}));
  same(nn::HingeEmbeddingLoss({.margin = 2})(o.a, o.sign),
       nn::hinge_embedding_loss(o.a, o.sign, {.margin = 2}));
  same(nn::SoftMarginLoss()(o.a, o.sign), nn::soft_margin_loss(o.a, o.sign));
  same(nn::MultiLabelSoftMarginLoss({.reduction = sums})(o.a, o.yes),
       nn::multilabel_soft_margin_loss(o.a, o.yes, {.reduction = sums}));
  same(nn::GaussianNLLLoss({.full = true})(o.a, o.b, o.var),
       nn::gaussian_nll_loss(o.a, o.b, o.var, {.full = true}));
  same(nn::MarginRankingLoss({.margin = 1})(o.a, o.b, o.sign),
       nn::margin_ranking_loss(o.a, o.b, o.sign, {.margin = 1}));
  same(nn::CosineEmbeddingLoss({.margin = 0.5})(o.a, o.b, o.row_sign),
       nn::cosine_embedding_loss(o.a, o.b, o.row_sign, {.margin = 0.5}));
  same(nn::TripletMarginLoss({.margin = 3})(o.a, o.b, o.c),
       nn::triplet_margin_loss(o.a, o.b, o.c, {.margin = 3}));
  same(nn::TripletMarginWithDistanceLoss({.margin = 3})(o.a, o.b, o.c),
       nn::triplet_margin_loss(o.a, o.b, o.c, {.margin = 3}));
  same(nn::MultiLabelMarginLoss({.reduction = sums})(o.a, o.lists),
       nn::multilabel_margin_loss(o.a, o.lists, sums));
  same(nn::NLLLoss({.ignore_index = 1})(o.a, o.classes),
       nn::nll_loss(o.a, o.classes, {.ignore_index = 1}));
  same(nn::MultiMarginLoss({.p = 2})(o.a, o.classes),
       nn::multi_margin_loss(o.a, o.classes, {.p = 2}));
  nn::CrossEntropyLoss cross({.label_smoothing = 0.2});
  same(cross(o.a, o.classes), nn::cross_entropy(o.a, o.classes, {.label_smoothing = 0.2}));
  same(cross(o.a, o.t), nn::cross_entropy(o.a, o.t, {.label_smoothing = 0.2}));
}

TEST_CASE("more losses name what does not fit") {
  const Variable x(zeros({2, 3})), y(zeros({3}));
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const std::string shapes =
      " input has shape [2, 3] and target [3]; reshape or expand one of them";
  CHECK(text([&] { nn::margin_ranking_loss(x, y, x); }) == "[nn.margin_ranking_loss]" + shapes);
  CHECK(text([&] { nn::margin_ranking_loss(x, x, y); }) == "[nn.margin_ranking_loss]" + shapes);
  CHECK(text([&] { nn::hinge_embedding_loss(x, y); }) == "[nn.hinge_embedding_loss]" + shapes);
  CHECK(text([&] { nn::triplet_margin_loss(x, x, y); }) == "[nn.triplet_margin_loss]" + shapes);
  CHECK(text([&] { nn::soft_margin_loss(x, y); }) == "[nn.soft_margin_loss]" + shapes);
  CHECK(text([&] { nn::binary_cross_entropy(x, y); }) == "[nn.binary_cross_entropy]" + shapes);
  CHECK(text([&] { nn::poisson_nll_loss(x, y); }) == "[nn.poisson_nll_loss]" + shapes);
  CHECK(text([&] { nn::cosine_embedding_loss(x, x, y); }) ==
        "[nn.cosine_embedding_loss] vectors [..., features] of shape [2, 3] take a floating target "
        "of the shape without the last dim, got f32 of shape [3]");
  CHECK(text([&] { nn::triplet_margin_loss(x, x, x, {.margin = 0}); }) ==
        "[nn.triplet_margin_loss] margin is 0; it is above 0");
  CHECK(text([&] { nn::triplet_margin_with_distance_loss(x, x, x, {.margin = -1}); }) ==
        "[nn.triplet_margin_with_distance_loss] margin is -1; it is above 0");
  CHECK(text([&] { nn::triplet_margin_with_distance_loss(x, x, y); }) ==
        "[nn.triplet_margin_with_distance_loss]" + shapes);
  CHECK(text([&] { nn::multilabel_margin_loss(x, zeros({2}, {.dtype = DType::kI64})); }) ==
        "[nn.multilabel_margin_loss] an input of shape [2, 3] takes i64 or i32 targets of that "
        "shape, got i64 of shape [2]");
  CHECK(text([&] {
          nn::multilabel_margin_loss(x, full({2, 3}, 3, {.dtype = DType::kI64}));
          current_stream(default_device()).synchronize();
        }).find("index 3") != std::string::npos);
  const Variable number(zeros({}));
  CHECK(text([&] { nn::triplet_margin_loss(number, number, number); }) ==
        "[nn.triplet_margin_loss] the anchor is 0-d; the last dim counts features");
  CHECK(text([&] { nn::multilabel_soft_margin_loss(number, number); }) ==
        "[nn.multilabel_soft_margin_loss] the input is 0-d; the last dim counts classes");
  const Tensor classes = zeros({2}, {.dtype = DType::kI64});
  CHECK(text([&] { nn::multi_margin_loss(x, classes, {.p = 3}); }) ==
        "[nn.multi_margin_loss] p is 3; it is 1 or 2");
  CHECK(text([&] { nn::multi_margin_loss(x, zeros({3}, {.dtype = DType::kI64})); }) ==
        "[nn.multi_margin_loss] an input of shape [2, 3] takes i64 or i32 targets of the shape "
        "without the last dim, got i64 of shape [3]");
  CHECK(text([&] { nn::multi_margin_loss(x, classes, {.weight = zeros({2})}); }) ==
        "[nn.multi_margin_loss] weight is f32 of shape [2]; it is floating, one for each of 3 "
        "classes");
  CHECK(text([&] { nn::gaussian_nll_loss(x, x, x, {.eps = 0}); }) ==
        "[nn.gaussian_nll_loss] eps is 0; it is above 0");
  CHECK(text([&] { nn::gaussian_nll_loss(x, x, y); }) ==
        "[nn.gaussian_nll_loss] var is f32 of shape [3]; it is floating, of the input's shape [2, "
        "3], or that with a last extent of 1, or without the last dim");
  CHECK(text([&] { nn::binary_cross_entropy(x, x, {.weight = zeros({2})}); }) ==
        "[nn.binary_cross_entropy] weight is f32 of shape [2]; it is floating and expands to the "
        "input's, [2, 3]");
}

}  // namespace tessera::testing
