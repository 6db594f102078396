#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/indexed.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

using ops::check_index;
using ops::slices;
using ops::throw_bad_index;

constexpr const char* kOneHot = "one_hot";
constexpr const char* kEmbedding = "embedding";
constexpr const char* kEmbeddingBackward = "embedding_backward_into";

void check_weight(const char* where, const Tensor& weight, const Tensor& index) {
  check_index(where, weight, index);
  TESSERA_CHECK(weight.ndim() == 2, where, "needs a weight [entries, features], got {}",
                weight.shape().str());
}

}  // namespace

Tensor one_hot(const Tensor& index, std::int64_t classes, DType dtype) {
  check_index(kOneHot, index, index);
  TESSERA_CHECK(classes >= 1, kOneHot, "the number of classes is {}; it must be at least 1",
                classes);
  const TensorOptions options{.dtype = dtype, .device = index.device()};
  Shape shape = index.shape();
  shape.push_back(classes);
  const Tensor out = zeros(shape, options);
  const Tensor chosen = index.unsqueeze(-1);
  ops::put(out, {.dim = index.ndim(), .index = chosen}, ones({}, options).expand(chosen.shape()),
           {.where = kOneHot, .bad_index = throw_bad_index<kOneHot>});
  return out;
}

Tensor embedding(const Tensor& weight, const Tensor& index) {
  check_weight(kEmbedding, weight, index);
  const Tensor flat = contiguous(index).view({index.numel()});
  Shape shape = index.shape();
  shape.push_back(weight.dim(1));
  return ops::gathered(weight, slices(flat, 0, {index.numel(), weight.dim(1)}),
                       throw_bad_index<kEmbedding>)
      .view(shape);
}

void embedding_backward_into(const Tensor& dweight, const Tensor& dy, const Tensor& index,
                             const EmbeddingBackwardOptions& options) {
  check_weight(kEmbeddingBackward, dweight, index);
  ops::check_defined(kEmbeddingBackward, "dy", dy);
  ops::check_floating(kEmbeddingBackward, dweight);
  ops::check_same_device(kEmbeddingBackward, dweight, dy);
  Shape shape = index.shape();
  shape.push_back(dweight.dim(1));
  TESSERA_CHECK(dy.shape() == shape, kEmbeddingBackward, "dy has shape {}, expected {}",
                dy.shape().str(), shape.str());
  const Shape rows{index.numel(), dweight.dim(1)};
  const Tensor flat = contiguous(index).view({index.numel()});
  if (options.beta == 0) {
    fill_(dweight, 0);
  } else if (options.beta != 1) {
    axpby_(dweight, dweight, {.alpha = options.beta});
  }
  ops::add_into(dweight, slices(flat, 0, rows), contiguous(dy).view(rows),
                {.where = kEmbeddingBackward,
                 .skip = options.padding_index,
                 .bad_index = throw_bad_index<kEmbeddingBackward>});
}

}  // namespace tessera
