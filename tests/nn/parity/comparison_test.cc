// What the other tests here rely on: that training which differs from PyTorch's is found.
#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

using testing::compare_training;
using testing::on_x;
using testing::trained;
using testing::TrainedModel;
using testing::TrainingBatch;
using testing::TrainingDifference;

TrainingDifference linear(const testing::MakeModel& make, DType dtype = DType::kF64) {
  return compare_training("linear", "Linear", make, dtype);
}

TEST_CASE("comparison: the formula") {
  CHECK(testing::formula_numbers(4, 1, 0, 1) ==
        std::vector<double>{-0.64599609375, 0.802734375, -0.07568359375, -0.615234375});
  CHECK(testing::formula_numbers(2, 1000, 1, 0.5) ==
        std::vector<double>{1.18115234375, 1.008056640625});
}

TEST_CASE("comparison: equal training passes in both dtypes") {
  for (DType dtype : {DType::kF64, DType::kF32}) {
    const TrainingDifference found = linear(on_x<nn::Linear>({.in = 5, .out = 3}), dtype);
    CHECK(found.ok);
    CHECK(found.worst > 0);
    CHECK(found.message == "0 differences");
  }
}

TEST_CASE("comparison: names and shapes that differ") {
  const TrainingDifference fewer = linear(on_x<nn::Linear>({.in = 5, .out = 3, .bias = false}));
  CHECK(std::isinf(fewer.worst));
  CHECK(fewer.message ==
        "the model has no bias\nthe model has 1 parameters and 0 buffers, PyTorch's 2 together\n"
        "2 differences");
  const TrainingDifference wider = linear(on_x<nn::Linear>({.in = 5, .out = 4}));
  CHECK_FALSE(wider.ok);
  CHECK(wider.message.find("weight has shape [4, 5], PyTorch's [3, 5]\n") == 0);
  CHECK_THROWS_WITH(
      compare_training("linear", "none", on_x<nn::Linear>({.in = 5, .out = 3}), DType::kF64),
      "linear.json has no case \"none\"");
  CHECK_THROWS_WITH(testing::load_training_case("none", "none"),
                    "cannot read tests/nn/reference/none.json");
}

// A Linear whose output is what `change` makes of it.
template <class Change>
testing::MakeModel changed(Change change) {
  return [change] {
    return trained(std::make_shared<nn::Linear>(nn::LinearOptions{.in = 5, .out = 3}),
                   [change](nn::Linear& model, const TrainingBatch& batch) {
                     return testing::squared_error(change(model(batch["x"])), batch);
                   });
  };
}

TEST_CASE("comparison: values and gradients that differ") {
  const TrainingDifference value =
      linear(changed([](const Variable& y) { return y * (1 + 1e-8); }));
  CHECK_FALSE(value.ok);
  CHECK(value.worst < 1e-7);
  CHECK(value.message.find("output [0] is ") == 0);
  // The value is right, the gradient is not.
  const TrainingDifference gradient = linear(
      changed([](const Variable& y) { return Variable(y.tensor()) + (y - y.detach()) * 1.001; }));
  CHECK_FALSE(gradient.ok);
  CHECK(gradient.message.find("gradient of x [") == 0);
  const TrainingDifference missing =
      linear(changed([](const Variable& y) { return y * std::nan(""); }));
  CHECK_FALSE(missing.ok);
  CHECK(std::isinf(missing.worst));
}

TEST_CASE("comparison: steps that differ") {
  const auto with_momentum = [](double momentum) {
    return [momentum] {
      TrainedModel out = on_x<nn::Linear>({.in = 5, .out = 3})();
      const auto sgd = std::make_shared<nn::optim::SGD>(
          out.module->parameters(),
          nn::optim::SgdOptions{.lr = 0.05, .momentum = momentum, .weight_decay = 0.01});
      out.update = [sgd] { sgd->step(); };
      return out;
    };
  };
  CHECK(linear(with_momentum(0.9)).ok);
  const TrainingDifference found = linear(with_momentum(0.9001));
  CHECK_FALSE(found.ok);
  CHECK(found.message.find("loss of step 2 ") ==
        0);  // the second update is the first with momentum
}

TEST_CASE("comparison: running statistics that differ") {
  const auto with = [](std::optional<double> momentum) {
    return testing::sequence_on_x([momentum](nn::Sequential& net) {
      net.add<nn::Linear>({.in = 5, .out = 6});
      net.add<nn::BatchNorm1d>({.channels = 6, .momentum = momentum});
      net.add<nn::Linear>({.in = 6, .out = 3});
    });
  };
  CHECK(compare_training("batch_norm", "BatchNorm1d", with(0.1), DType::kF32).ok);
  const TrainingDifference found =
      compare_training("batch_norm", "BatchNorm1d", with(0.11), DType::kF32);
  CHECK_FALSE(found.ok);
  CHECK(found.message.find("in the end 1.running_mean [0]") == 0);
}

}  // namespace
}  // namespace tessera
