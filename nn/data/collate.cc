#include "tessera/nn/data/collate.h"

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::data::detail {
namespace {

constexpr const char* kWhere = "nn.data.collate";

}  // namespace

Tensor stack_examples(const std::vector<Tensor>& examples, bool pinned) {
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const Tensor& each = examples[i];
    TESSERA_CHECK(each.defined(), kWhere, "example {} of the batch is an undefined tensor", i);
    TESSERA_CHECK(each.device().is_cpu(), kWhere,
                  "example {} of the batch is on {}; data sets and transforms work on the CPU, the "
                  "loader copies batches to a device",
                  i, each.device().str());
    TESSERA_CHECK(
        each.shape() == examples[0].shape() && each.dtype() == examples[0].dtype(), kWhere,
        "example {} of the batch is {} {}, the first one {} {}; make them equal, or give the "
        "loader a function that collates",
        i, dtype_name(each.dtype()), each.shape().str(), dtype_name(examples[0].dtype()),
        examples[0].shape().str());
  }
  const Tensor& first = examples[0];
  const Shape shape = first.shape().inserted(0, static_cast<std::int64_t>(examples.size()));
  const Tensor batch =
      Tensor::empty(shape, {.dtype = first.dtype(), .device = kCpu, .pinned = pinned});
  for (std::size_t i = 0; i < examples.size(); ++i)
    copy_(batch.select(0, static_cast<std::int64_t>(i)), examples[i]);
  return batch;
}

void throw_lengths_differ(std::size_t example, std::size_t length, std::size_t first) {
  throw_error<InvalidArgument>(
      kWhere,
      "example {} of the batch has a list of {}, the first one of {}; make them equal, or give the "
      "loader a function that collates",
      example, length, first);
}

}  // namespace tessera::nn::data::detail
