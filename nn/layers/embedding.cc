#include "tessera/nn/layers/embedding.h"

#include "tessera/autograd/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops_create.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.Embedding";

const EmbeddingOptions& checked(const EmbeddingOptions& options) {
  TESSERA_CHECK(options.entries >= 1 && options.dim >= 1, kWhere,
                "expected entries and dim of at least 1, got entries = {}, dim = {}",
                options.entries, options.dim);
  TESSERA_CHECK(options.padding_index >= -1 && options.padding_index < options.entries, kWhere,
                "padding_index is {}; it must be an entry below {}, or -1 for none",
                options.padding_index, options.entries);
  return options;
}

Initializer default_init(std::int64_t padding_index) {
  return [normal = init::normal(0, 1), padding_index](const Tensor& out, random::Key key,
                                                      const random::Box& box) {
    normal(out, key, box);
    const std::int64_t row = padding_index - box.offset[0];
    if (padding_index >= 0 && row >= 0 && row < out.dim(0)) zero_(out.select(0, row));
  };
}

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options)
    : weight_({.shape = {checked(options).entries, options.dim},
               .dtype = options.dtype,
               .init = default_init(options.padding_index)}),
      padding_index_(options.padding_index) {
  register_parameter("weight", weight_);
}

Variable Embedding::forward(const Tensor& index) {
  return embedding(weight_.value(), index, {.padding_index = padding_index_});
}

}  // namespace tessera::nn
