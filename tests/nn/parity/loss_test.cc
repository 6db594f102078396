// A linear layer trains under each loss as under PyTorch's.
#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

using testing::StepResult;
using testing::TrainingBatch;

// loss(output of the layer, batch).
template <class Loss>
void check(const std::string& name, Loss loss) {
  const testing::MakeModel make = [loss] {
    return testing::trained(std::make_shared<nn::Linear>(nn::LinearOptions{.in = 5, .out = 4}),
                            [loss](nn::Linear& model, const TrainingBatch& batch) -> StepResult {
                              const Variable output = model(batch["x"]);
                              return {output, loss(output, batch)};
                            });
  };
  check_training("loss", name, make);
}

TEST_CASE("parity: losses of class indices") {
  check("cross entropy", [](const Variable& y, const TrainingBatch& batch) {
    return nn::cross_entropy(y, batch.tensor("classes"));
  });
  check("cross entropy, weight, smoothing, a class ignored",
        [](const Variable& y, const TrainingBatch& batch) {
          return nn::cross_entropy(
              y, batch.tensor("classes"),
              {.ignore_index = 2, .label_smoothing = 0.125, .weight = batch.tensor("weight")});
        });
  check("cross entropy, sum", [](const Variable& y, const TrainingBatch& batch) {
    return nn::cross_entropy(y, batch.tensor("classes"), {.reduction = LossReduction::kSum}) / 8;
  });
  check("nll", [](const Variable& y, const TrainingBatch& batch) {
    return nn::nll_loss(log_softmax(y, -1), batch.tensor("classes"));
  });
  check("nll, weight, a class ignored", [](const Variable& y, const TrainingBatch& batch) {
    return nn::nll_loss(log_softmax(y, -1), batch.tensor("classes"),
                        {.ignore_index = 1, .weight = batch.tensor("weight")});
  });
}

TEST_CASE("parity: cross entropy of probabilities") {
  check("cross entropy of probabilities", [](const Variable& y, const TrainingBatch& batch) {
    return nn::cross_entropy(y, batch["target"]);
  });
  check("cross entropy of probabilities, weight, smoothing",
        [](const Variable& y, const TrainingBatch& batch) {
          return nn::cross_entropy(y, batch["target"],
                                   {.label_smoothing = 0.125, .weight = batch.tensor("weight")});
        });
}

TEST_CASE("parity: losses of distances") {
  check("mse", [](const Variable& y, const TrainingBatch& batch) {
    return nn::mse_loss(y, batch["target"]);
  });
  check("mse, sum", [](const Variable& y, const TrainingBatch& batch) {
    return nn::mse_loss(y, batch["target"], LossReduction::kSum) / 32;
  });
  check("mse, none", [](const Variable& y, const TrainingBatch& batch) {
    return sum(square(nn::mse_loss(y, batch["target"], LossReduction::kNone))) / 32;
  });
  check("l1", [](const Variable& y, const TrainingBatch& batch) {
    return nn::l1_loss(y, batch["target"]);
  });
  check("huber", [](const Variable& y, const TrainingBatch& batch) {
    return nn::huber_loss(y, batch["target"], {.delta = 0.5});
  });
  check("smooth l1", [](const Variable& y, const TrainingBatch& batch) {
    return nn::smooth_l1_loss(y, batch["target"], {.beta = 0.25});
  });
}

TEST_CASE("parity: losses of probabilities") {
  check("bce with logits", [](const Variable& y, const TrainingBatch& batch) {
    return nn::bce_with_logits_loss(y, batch["target"]);
  });
  check("bce with logits, weights", [](const Variable& y, const TrainingBatch& batch) {
    return nn::bce_with_logits_loss(
        y, batch["target"],
        {.weight = batch.tensor("factor"), .pos_weight = batch.tensor("weight")});
  });
  check("kl", [](const Variable& y, const TrainingBatch& batch) {
    return nn::kl_div(log_softmax(y, -1), batch["target"]);
  });
  check("kl, mean of the batch", [](const Variable& y, const TrainingBatch& batch) {
    return nn::kl_div(log_softmax(y, -1), batch["target"], {.reduction = LossReduction::kSum}) / 9;
  });
  check("kl of logarithms", [](const Variable& y, const TrainingBatch& batch) {
    return nn::kl_div(log_softmax(y, -1), batch["target"], {.log_target = true});
  });
}

}  // namespace
}  // namespace tessera
