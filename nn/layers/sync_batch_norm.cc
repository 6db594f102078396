#include "tessera/nn/layers/sync_batch_norm.h"

#include <optional>
#include <utility>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn::detail {
namespace {

constexpr const char* kName = "sync_batch_norm";

Tensor sum_over(const RanksOfBatch& ranks, Tensor sums) {
  ranks.mesh->all_reduce(sums, ranks.axis, MeshReduce::kSum);
  return sums;
}

// The formula stands in ops/norm.h. In f64, because a sum over ranks should cost no digits.
BatchStatistics of_all_ranks(const BatchStatistics& own, const RanksOfBatch& ranks) {
  const std::int64_t channels = own.mean.numel();
  const Tensor own_mean = cast(own.mean, DType::kF64);
  const Tensor sums = sum_over(ranks, cat({mul(own_mean, own.count), own.count.view({1})}));
  const Tensor count = clone(sums.select(0, channels));
  const Tensor mean = div(sums.slice(0, 0, channels), maximum(count, 1));
  const Tensor m2 =
      sum_over(ranks, add(cast(own.m2, DType::kF64), mul(square(sub(own_mean, mean)), own.count)));
  return {.mean = cast(mean, own.mean.dtype()), .m2 = cast(m2, own.m2.dtype()), .count = count};
}

BatchNormSums of_all_ranks(const BatchNormSums& own, const Tensor& count,
                           const RanksOfBatch& ranks) {
  const std::int64_t channels = own.dy.numel();
  const Tensor sums =
      sum_over(ranks, cat({cast(own.dy, DType::kF64), cast(own.dy_normal, DType::kF64)}));
  return {.dy = cast(sums.slice(0, 0, channels), own.dy.dtype()),
          .dy_normal = cast(sums.slice(0, channels, 2 * channels), own.dy.dtype()),
          .count = count};
}

// What backward keeps.
struct SavedCall {
  SavedTensor x;
  std::optional<SavedTensor> weight;
  DType weight_dtype, bias_dtype;
  NormStatistics statistics;
  Tensor count;  // over all ranks
  RanksOfBatch ranks;

  std::vector<Tensor> gradients(const Tensor& dy, const BackwardContext& context) const {
    const Tensor& in = x.unpack();
    const BatchNormSums own = batch_norm_sums(dy, in, statistics);
    std::vector<Tensor> out(3);
    if (context.needs(0)) {
      out[0] = batch_norm_input_gradient(dy, in, weight ? weight->unpack() : Tensor(), statistics,
                                         of_all_ranks(own, count, ranks));
    }
    if (context.needs(1)) out[1] = cast(own.dy_normal, weight_dtype);
    if (context.needs(2)) out[2] = cast(own.dy, bias_dtype);
    return out;
  }
};

Tensor tensor_or_none(const Variable& x) { return x.defined() ? x.tensor() : Tensor(); }

Variable in_f32(const Variable& x) {
  return x.defined() ? cast(x, promote(x.dtype(), DType::kF32)) : x;
}

Variable computed(const Variable& x, const Variable& weight, const Variable& bias,
                  const BatchNormOptions& options, const RanksOfBatch& ranks) {
  const BatchStatistics batch = of_all_ranks(batch_norm_statistics(x.tensor()), ranks);
  const NormStatistics statistics{.mean = batch.mean, .rstd = batch_norm_rstd(batch, options)};
  Tensor y = batch_norm_apply(x.tensor(), tensor_or_none(weight), tensor_or_none(bias), statistics);
  SavedCall saved{
      .x = SavedTensor(x, kName),
      .weight = weight.defined() ? std::optional(SavedTensor(weight, kName)) : std::nullopt,
      .weight_dtype = weight.defined() ? weight.dtype() : x.dtype(),
      .bias_dtype = bias.defined() ? bias.dtype() : x.dtype(),
      .statistics = statistics,
      .count = batch.count,
      .ranks = ranks};
  return record(kName, std::move(y), {x, weight, bias},
                [saved = std::move(saved)](const Tensor& dy, const BackwardContext& context) {
                  return saved.gradients(dy, context);
                });
}

}  // namespace

Variable sync_batch_norm(const Variable& x, const Variable& weight, const Variable& bias,
                         const BatchNormOptions& options, const RanksOfBatch& ranks) {
  // As the table of autocast.h says of batch_norm.
  if (autocast_dtype()) return computed(in_f32(x), in_f32(weight), in_f32(bias), options, ranks);
  return computed(x, weight, bias, options, ranks);
}

}  // namespace tessera::nn::detail
