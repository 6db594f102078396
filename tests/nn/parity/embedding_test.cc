// Embeddings train as PyTorch's do.
#include <catch2/catch.hpp>

#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

using testing::check_training;

testing::MakeModel embedded(std::int64_t padding_index) {
  return [padding_index] {
    const auto net = std::make_shared<nn::Sequential>();
    net->add<nn::Embedding>({.entries = 11, .dim = 6, .padding_index = padding_index});
    net->add<nn::Linear>({.in = 6, .out = 3});
    return testing::trained(net, [](nn::Sequential& model, const testing::TrainingBatch& batch) {
      return testing::squared_error(model(batch["tokens"]), batch);
    });
  };
}

TEST_CASE("parity: embedding") {
  check_training("embedding", "Embedding", embedded(-1));
  check_training("embedding", "Embedding with padding", embedded(2));
}

}  // namespace
}  // namespace tessera
