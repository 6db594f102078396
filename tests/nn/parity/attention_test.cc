// Multi-head attention trains as PyTorch's does: self, cross, masks, weights, grouped heads,
// rotary.
#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

using testing::MakeModel;
using testing::squared_error;
using testing::StepResult;
using testing::trained;
using testing::TrainingBatch;

// The masks of a step's call; undefined where the case has none.
using Call = std::function<nn::AttentionForwardOptions(const TrainingBatch&)>;

nn::AttentionForwardOptions no_masks(const TrainingBatch&) { return {}; }
nn::AttentionForwardOptions causal(const TrainingBatch&) { return {.is_causal = true}; }
nn::AttentionForwardOptions mask(const TrainingBatch& batch) {
  return {.attn_mask = batch.tensor("mask")};
}
nn::AttentionForwardOptions padding(const TrainingBatch& batch) {
  return {.key_padding_mask = batch.tensor("padding")};
}
nn::AttentionForwardOptions both(const TrainingBatch& batch) {
  return {.attn_mask = batch.tensor("mask"), .key_padding_mask = batch.tensor("padding")};
}

template <class Step>
void check(const std::string& name, const nn::MultiheadAttentionOptions& options, Step step,
           const std::string& how = "") {
  const MakeModel make = [options, step] {
    return trained(std::make_shared<nn::MultiheadAttention>(options), step);
  };
  check_training("attention", name, make, how);
}

auto of_x(Call call) {
  return [call](nn::MultiheadAttention& model, const TrainingBatch& batch) {
    return squared_error(model(batch["x"], call(batch)).output, batch);
  };
}
auto of_three(Call call) {
  return [call](nn::MultiheadAttention& model, const TrainingBatch& batch) {
    const auto result = model(batch["query"], batch["key"], batch["value"], call(batch));
    return squared_error(result.output, batch);
  };
}
// The same, through the code that also gives the weights.
auto of_three_with_weights(Call call) {
  return [call](nn::MultiheadAttention& model, const TrainingBatch& batch) {
    nn::AttentionForwardOptions options = call(batch);
    options.need_weights = true;
    const auto result = model(batch["query"], batch["key"], batch["value"], options);
    return squared_error(result.output, batch);
  };
}

TEST_CASE("parity: self attention") {
  const nn::MultiheadAttentionOptions plain{.dim = 8, .heads = 2};
  check("self", plain, of_x(no_masks));
  check(
      "self", plain,
      [](nn::MultiheadAttention& model, const TrainingBatch& batch) {
        return squared_error(model(batch["x"], batch["x"], batch["x"]).output, batch);
      },
      "as query, key and value");
  check("self, without bias", {.dim = 8, .heads = 2, .bias = false}, of_x(no_masks));
  check("self, causal", plain, of_x(mask));
  check("self, causal", plain, of_x(causal), "by is_causal");
  check("self, padding", plain, of_x(padding));
}

TEST_CASE("parity: cross attention") {
  const nn::MultiheadAttentionOptions plain{.dim = 8, .heads = 2};
  check("cross", plain, of_three(no_masks));
  check("cross, keys and values of other dims", {.dim = 8, .heads = 2, .kdim = 4, .vdim = 3},
        of_three(no_masks));
  check("cross, length before batch", {.dim = 8, .heads = 2, .batch_first = false},
        of_three(no_masks));
  check("cross, bool mask and padding", plain, of_three(both));
  check("cross, bool mask and padding", plain, of_three_with_weights(both), "with weights");
  check("cross, floating mask", plain, of_three(mask));
  check("cross, floating mask", plain, of_three_with_weights(mask), "with weights");
  check("cross, a mask for each head", plain, of_three(mask));
}

TEST_CASE("parity: attention's weights") {
  const auto step = [](nn::MultiheadAttention& model, const TrainingBatch& batch) -> StepResult {
    nn::AttentionForwardOptions options = padding(batch);
    options.need_weights = true;
    const auto result = model(batch["query"], batch["key"], batch["value"], options);
    const StepResult of_output = squared_error(result.output, batch);
    return {cat({result.output, result.weights}, -1),
            of_output.loss + mean(square(result.weights))};
  };
  check("cross, with weights", {.dim = 8, .heads = 2}, step);
}

TEST_CASE("parity: grouped heads") {
  check("grouped heads", {.dim = 8, .heads = 4, .kv_heads = 2}, of_x(no_masks));
  check("one head of keys and values", {.dim = 8, .heads = 4, .kv_heads = 1}, of_x(no_masks));
  const auto rotary =
      std::make_shared<nn::RotaryEmbedding>(nn::RotaryEmbeddingOptions{.dim = 4, .max_length = 7});
  check("grouped heads, rotary, causal", {.dim = 8, .heads = 2, .kv_heads = 1, .rotary = rotary},
        of_x(causal));
}

}  // namespace
}  // namespace tessera
