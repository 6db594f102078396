// Losses: values and gradients against PyTorch and plain loops.
#include <functional>

#include "tessera/tests/nn/loss_fixtures.h"

namespace tessera::testing {
namespace {

using LossOfInput = std::function<Variable(const Variable&, LossReduction)>;

struct TorchCase {
  const char* name;
  LossOfInput loss;
  Doubles input;
  Shape shape;
  Doubles values;    // kNone
  Doubles gradient;  // of their sum
  double mean;
};

const Doubles kX = {0.5, -1.25, 2.0, -3.5, 0.25, 4.0}, kT = {0.25, -1.25, -0.5, -2.0, 1.5, 0.75},
              kP = {0, 0.2, 1.0, 0.5, 0.9, 0.0}, kLogX = {-0.5, -1.25, -2.0, -3.5, -0.25, -4.0},
              kRows = {-0.5, -1.25, -2.0, -3.5, -0.25, -4.0, -0.75, -1.5, -3.0},
              kSoft = {0.2, 0.3, 0.5, 1.0, 0.0, 0.0, 0.5, 0.25, 0.0};

Tensor class_weight() { return f64({0.5, 2, 1.25}, {3}); }
Tensor classes(const std::vector<std::int64_t>& of) {
  return Tensor::from_vector(of, {static_cast<std::int64_t>(of.size())});
}

std::vector<TorchCase> distances() {
  return {
      {"mse",
       [](const Variable& x, LossReduction r) { return nn::mse_loss(x, constant(kT, {6}), r); },
       kX,
       {6},
       {0.0625, 0, 6.25, 2.25, 1.5625, 10.5625},
       {0.5, 0, 5, -3, -2.5, 6.5},
       3.4479166666666665},
      {"l1",
       [](const Variable& x, LossReduction r) { return nn::l1_loss(x, constant(kT, {6}), r); },
       kX,
       {6},
       {0.25, 0, 2.5, 1.5, 1.25, 3.25},
       {1, 0, 1, -1, -1, 1},
       1.4583333333333333},
      {"huber",
       [](const Variable& x, LossReduction r) {
         return nn::huber_loss(x, constant(kT, {6}), {.reduction = r, .delta = 1.5});
       },
       kX,
       {6},
       {0.03125, 0, 2.625, 1.125, 0.78125, 3.75},
       {0.25, 0, 1.5, -1.5, -1.25, 1.5},
       1.3854166666666667},
      {"smooth l1",
       [](const Variable& x, LossReduction r) {
         return nn::smooth_l1_loss(x, constant(kT, {6}), {.reduction = r, .beta = 0.5});
       },
       kX,
       {6},
       {0.0625, 0, 2.25, 1.25, 1, 3},
       {0.5, 0, 1, -1, -1, 1},
       1.2604166666666667},
      {"smooth l1 with beta 0",
       [](const Variable& x, LossReduction r) {
         return nn::smooth_l1_loss(x, constant(kT, {6}), {.reduction = r, .beta = 0});
       },
       kX,
       {6},
       {0.25, 0, 2.5, 1.5, 1.25, 3.25},
       {1, 0, 1, -1, -1, 1},
       1.4583333333333333},
  };
}

std::vector<TorchCase> binary() {
  return {
      {"bce",
       [](const Variable& x, LossReduction r) {
         return nn::bce_with_logits_loss(x, constant(kP, {6}), {.reduction = r});
       },
       kX,
       {6},
       {0.9740769841801067, 0.501929081345373, 0.1269280110429725, 1.7797504182726205,
        0.6009394198788436, 4.0181499279178094},
       {0.6224593312018546, 0.02270013882530883, -0.11920292202211769, -0.4706877692486437,
        -0.33782349911420195, 0.9820137900379085},
       1.333628973772954},
      {"weighted bce",
       [](const Variable& x, LossReduction r) {
         return nn::bce_with_logits_loss(x, constant(kP, {2, 3}),
                                         {.reduction = r,
                                          .weight = f64({0.5, 2}, {2, 1}),
                                          .pos_weight = f64({1, 3, 0.25}, {3})});
       },
       kX,
       {2, 3},
       {0.48703849209005334, 0.551350356941761, 0.015866001380371562, 3.559500836545241,
        3.2752607513215235, 8.036299855835619},
       {0.3112296656009273, -0.14410990282228384, -0.01490036525276471, -0.9413755384972874,
        -2.251811595039531, 1.964027580075817},
       2.6542193823524283},
  };
}

std::vector<TorchCase> divergences() {
  return {
      {"kl",
       [](const Variable& x, LossReduction r) {
         return nn::kl_div(x, constant(kP, {6}), {.reduction = r});
       },
       kLogX,
       {6},
       {0, -0.07188758248682009, 2.0, 1.4034264097200273, 0.13017553590795633, 0},
       {0, -0.2, -1, -0.5, -0.9, 0},
       0.5769523938568606},
      {"kl of logarithms",
       [](const Variable& x, LossReduction r) {
         return nn::kl_div(x, constant({-1, -0.5, -2, -0.75, -3, -0.1}, {6}),
                           {.reduction = r, .log_target = true});
       },
       kLogX,
       {6},
       {-0.18393972058572117, 0.45489799478447507, 0, 1.2990080200377905, -0.13691443801162584,
        3.528865930340242},
       {-0.36787944117144233, -0.6065306597126334, -0.1353352832366127, -0.4723665527410147,
        -0.049787068367863944, -0.9048374180359595},
       0.8269862977608601},
  };
}

std::vector<TorchCase> likelihoods() {
  return {
      {"nll",
       [](const Variable& x, LossReduction r) {
         return nn::nll_loss(x, classes({2, -100, 0}), {.reduction = r});
       },
       kRows,
       {3, 3},
       {2, 0, 0.75},
       {0, 0, -1, 0, 0, 0, -1, 0, 0},
       1.375},
      {"weighted nll",
       [](const Variable& x, LossReduction r) {
         return nn::nll_loss(x, classes({2, 1, 0}),
                             {.reduction = r, .ignore_index = 1, .weight = class_weight()});
       },
       kRows,
       {3, 3},
       {2.5, 0, 0.375},
       {0, 0, -1.25, 0, 0, 0, -0.5, 0, 0},
       1.6428571428571428},
  };
}

std::vector<TorchCase> cross_entropies() {
  return {
      {"cross entropy of probabilities",
       [](const Variable& x, LossReduction r) {
         return nn::cross_entropy(x, constant(kSoft, {3, 3}), {.reduction = r});
       },
       kRows,
       {3, 3},
       {1.50297574385531, 3.310428794349588, 0.5295073359804565},
       {0.3897976636568126, -0.02139931080372698, -0.36839835285308564, -0.9634994808186979,
        0.941360796839809, 0.02213868397888885, -0.024644271799270562, -0.025457853344126674,
        0.050102125143397215},
       1.7809706247284514},
      {"weighted, smoothed cross entropy of probabilities",
       [](const Variable& x, LossReduction r) {
         return nn::cross_entropy(
             x, constant(kSoft, {3, 3}),
             {.reduction = r, .label_smoothing = 0.2, .weight = class_weight()});
       },
       kRows,
       {3, 3},
       {2.026648224450456, 1.7601120496605653, 0.975108314111184},
       {0.6593016060570912, -0.24836643048621562, -0.4109351755708756, -0.4096079958654869,
        0.47855118461254254, -0.06894318874705557, 0.30540315862749334, -0.27885223379001023,
        -0.026550924837483152},
       1.5872895294074019},
  };
}

void check_case(const TorchCase& c) {
  INFO(c.name);
  const Variable x(f64(c.input, c.shape), true);
  const Variable none = c.loss(x, LossReduction::kNone), all = c.loss(x, LossReduction::kSum),
                 mean = c.loss(x, LossReduction::kMean);
  check_near(values(none.tensor()), c.values);
  check_near(values(gradient_of(none, x)), c.gradient);
  double total = 0;
  for (double value : c.values) total += value;
  CHECK(all.ndim() == 0);
  check_near({all.item<double>()}, {total});
  check_near({mean.item<double>()}, {c.mean});
  Doubles scaled = c.gradient;
  for (double& g : scaled) g *= c.mean / total;
  check_near(values(gradient_of(mean, x)), scaled);
}

}  // namespace

TEST_CASE("losses and their gradients are PyTorch's") {
  for (const auto& cases :
       {distances(), binary(), divergences(), likelihoods(), cross_entropies()}) {
    for (const TorchCase& c : cases) check_case(c);
  }
}

TEST_CASE("losses of strided operands and odd shapes follow their formulas") {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7, 3}, Shape{2, 3, 5}}) {
    INFO(shape.str());
    Tensor x = irregular(shape, -3, 3), t = irregular(shape, 0.01, 1, 0.7);
    if (shape.ndim() >= 2) {
      x = contiguous(x.transpose(0, 1)).transpose(0, 1);
      t = contiguous(t.transpose(0, -1)).transpose(0, -1);
    }
    const Doubles xs = values(contiguous(x)), ts = values(contiguous(t));
    Doubles mse, l1, huber, bce, kl;
    for (std::size_t i = 0; i < xs.size(); ++i) {
      const double d = xs[i] - ts[i], s = 1 / (1 + std::exp(-xs[i]));
      mse.push_back(d * d);
      l1.push_back(std::abs(d));
      huber.push_back(std::abs(d) <= 0.75 ? d * d / 2 : 0.75 * (std::abs(d) - 0.375));
      bce.push_back(-ts[i] * std::log(s) - (1 - ts[i]) * std::log(1 - s));
      kl.push_back(ts[i] * (std::log(ts[i]) - xs[i]));
    }
    const Variable a(x), b(t);
    constexpr LossReduction kNone = LossReduction::kNone;
    check_near(values(nn::mse_loss(a, b, kNone).tensor()), mse);
    check_near(values(nn::l1_loss(a, b, kNone).tensor()), l1);
    check_near(values(nn::huber_loss(a, b, {.reduction = kNone, .delta = 0.75}).tensor()), huber);
    check_near(values(nn::bce_with_logits_loss(a, b, {.reduction = kNone}).tensor()), bce, 1e-13);
    check_near(values(nn::kl_div(a, b, {.reduction = kNone}).tensor()), kl);
    CHECK(nn::mse_loss(a, b, kNone).shape() == shape);
  }
}

}  // namespace tessera::testing
