// Losses of a single row, without a batch, as PyTorch's: logits [classes] and a 0-d target.
#include "tessera/nn/training/margin_loss.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/loss_fixtures.h"

namespace tessera::testing {

Tensor class_3() { return Tensor::scalar(3, {.dtype = DType::kI64}); }

TEST_CASE("cross entropy and negative log likelihood of a single row") {
  const Tensor weight = f64({0.5, 2, 1, 3, 0.25}, {5});
  struct Case {
    CrossEntropyOptions options;
    double loss;
    double gradient;
  };
  for (const auto& [options, loss, gradient] :
       {Case{{}, 1.9253956914736523, 0.22375930067423844},
        Case{{.label_smoothing = 0.1}, 1.9198751502404627, 0.21062750096565225},
        Case{{.weight = weight}, 1.9253956914736523, 0.22375930067423844}}) {
    const Variable x(waves({5}, 0.5, 2), true);
    const Variable y = cross_entropy(x, class_3(), options);
    CHECK(y.shape() == Shape{});
    backward(y);
    check_near({y.item<double>(), weigh(Variable(x.grad())).item<double>()}, {loss, gradient},
               1e-13);
    CHECK(cross_entropy(x.tensor(), class_3(), options).item<double>() == y.item<double>());
  }
  const Variable x(waves({5}, 0.5, 2), true);
  CHECK(std::isnan(cross_entropy(x, class_3(), {.ignore_index = 3}).item<double>()));
  CHECK(cross_entropy(x, class_3(), {.reduction = LossReduction::kNone}).shape() == Shape{});
  const Variable weighed =
      nn::nll_loss(log_softmax(x), class_3(), {.reduction = LossReduction::kSum, .weight = weight});
  CHECK(weighed.shape() == Shape{});
  check_near({weighed.item<double>()}, {5.776187074420957}, 1e-13);
  const Variable p = softmax(Variable(waves({5}, 1.5, 1)));
  check_near({nn::cross_entropy(x, p).item<double>()}, {1.6185978383961135}, 1e-13);
}

TEST_CASE("margin losses of a single row") {
  const Variable x(waves({5}, 0.5, 2), true);
  check_near({nn::multi_margin_loss(x, class_3()).item<double>()}, {0.9245042387177801}, 1e-13);
  const Tensor lists = Tensor::from_vector<std::int64_t>({3, 0, -1, 2, 1}, {5});
  check_near({nn::multilabel_margin_loss(x, lists).item<double>()}, {1.5067298105831788}, 1e-13);
  CHECK(nn::multilabel_margin_loss(x, lists, LossReduction::kNone).shape() == Shape{});
  const Variable other(waves({5}, 2, 1), true);
  CHECK(nn::triplet_margin_loss(x, other, x).shape() == Shape{});
  CHECK(nn::cosine_embedding_loss(x, other, constant({1}, {})).shape() == Shape{});
}

}  // namespace tessera::testing
