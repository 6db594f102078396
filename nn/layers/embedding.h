#pragma once

/// y = the rows of a table that the index names.
///
///     index [...], i64 or i32, in [0, entries) -> y [..., dim]     weight [entries, dim]
///
/// The weight starts standard normal, the padding entry as 0, as in PyTorch, unless told otherwise.
/// The gradients of an entry that was named several times are added in the order of the index.
///
/// Where a rank holds some rows of the table only (Parameter::cut), the others read as 0, so that
/// the ranks' results add up to the whole one.
///
/// Left out of PyTorch's options: max_norm, which rewrites entries in each forward, outside the
/// optimizer, and on ranks that hold parts of the table; scale_grad_by_freq, whose gradient would
/// depend on how the batch is cut over ranks; sparse gradients, which optimizers and sharding would
/// have to know; device (see nn::initialize); negative padding indices. from_pretrained:
/// initialize, copy_() into weight().local().tensor(), and set_requires_grad(false) to freeze.

#include <cstdint>

#include "tessera/nn/layer.h"

namespace tessera::nn {

struct EmbeddingOptions {
  std::int64_t entries = 0;  ///< required, >= 1
  std::int64_t dim = 0;      ///< required, >= 1
  /// An entry that starts as 0 and gets no gradient, so that it stays; -1: none.
  std::int64_t padding_index = -1;
  DType dtype = DType::kF32;
  /// Initial values of the table (init.h), the padding entry's excepted; empty: PyTorch's.
  Initializer weight_init = {};
};

class Embedding final : public Layer<Embedding> {
 public:
  using Options = EmbeddingOptions;
  /// Throws InvalidArgument unless entries and dim are at least 1, and for a padding index outside
  /// [-1, entries).
  explicit Embedding(const EmbeddingOptions& options);
  Embedding(int, int, const auto&...) = delete;  ///< {.entries = 100, .dim = 8}

  /// Throws InvalidArgument for an index of another dtype, or one outside [0, entries).
  Variable forward(const Tensor& index);
  /// The same, so that it may begin a Sequential.
  Variable forward(const Variable& index) { return forward(index.tensor()); }

  Parameter& weight() { return weight_; }
  std::int64_t padding_index() const { return padding_index_; }

 private:
  Variable own_rows(const Tensor& index) const;

  Parameter weight_;
  std::int64_t padding_index_;
};

}  // namespace tessera::nn
