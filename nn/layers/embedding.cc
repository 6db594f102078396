#include "tessera/nn/layers/embedding.h"

#include <utility>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

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

// The table's values, and 0 in the padding entry.
Initializer table_init(Initializer values, std::int64_t padding_index) {
  return [values = std::move(values), padding_index](const Tensor& out, random::Key key,
                                                     const random::Box& box) {
    values(out, key, box);
    const std::int64_t row = padding_index - box.offset[0];
    if (padding_index >= 0 && row >= 0 && row < out.dim(0)) zero_(out.select(0, row));
  };
}

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options)
    : weight_({.shape = {checked(options).entries, options.dim},
               .dtype = options.dtype,
               .init = table_init(detail::chosen(options.weight_init, init::normal(0, 1)),
                                  options.padding_index)}),
      padding_index_(options.padding_index) {
  register_parameter("weight", weight_);
}

// Of a table of which this rank has rows [first, first + rows). An index that is no entry at all is
// handed on as it is, for the operation to refuse.
Variable Embedding::own_rows(const Tensor& index) const {
  const ShardSpec& part = weight_.value_spec();
  const std::int64_t entries = part.global_shape[0];
  const std::int64_t first = part.boxes.front().offset[0], rows = part.boxes.front().extent[0];
  const Tensor local = sub(index, first);
  const Tensor is_mine = logical_and(ge(local, 0), lt(local, rows));
  if (rows == 0) {  // nothing to look up; an empty product keeps the weight in the graph
    return matmul(Variable(zeros(index.shape().inserted(index.ndim(), 0),
                                 weight_.value().tensor().options())),
                  weight_.value());
  }
  const Tensor is_entry = logical_and(ge(index, 0), lt(index, entries));
  const Tensor row = where(is_mine, local, where(is_entry, zeros_like(index), index));
  const std::int64_t padding = padding_index_ - first;
  const Variable y = embedding(
      weight_.value(), row,
      {.padding_index = padding_index_ >= 0 && padding >= 0 && padding < rows ? padding : -1});
  return where(is_mine.unsqueeze(is_mine.ndim()), y, 0.0);
}

Variable Embedding::forward(const Tensor& index) {
  const ShardSpec& part = weight_.value_spec();
  if (part.boxes.front().extent[0] != part.global_shape[0]) return own_rows(index);
  return embedding(weight_.value(), index, {.padding_index = padding_index_});
}

}  // namespace tessera::nn
