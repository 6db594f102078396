#include "tessera/autograd/ops/attention.h"

#include <optional>
#include <utility>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/random_scope.h"

namespace tessera {
namespace {

constexpr const char* kName = "scaled_dot_product_attention";

// The operation's own options; draws a key where something will be dropped.
AttentionOptions settle(const AttentionLayerOptions& options, const Tensor& q, const Tensor& k) {
  AttentionOptions settled{.causal = options.causal,
                           .alignment = options.alignment,
                           .mask = options.mask,
                           .scale = options.scale};
  if (!options.training || options.dropout_p == 0) return settled;
  TESSERA_CHECK(!options.layer.empty(), kName,
                "dropout_p is {}, but layer is empty; name the layer, whose draws are counted",
                options.dropout_p);
  settled.dropout_p = options.dropout_p;
  settled.dropout_key = random::next_key(options.layer).key();
  settled.dropout_box = options.box;
  if (options.box.global.ndim() == 0 && q.ndim() >= 4 && k.ndim() == q.ndim()) {
    settled.dropout_box = random::whole(q.shape().with(q.ndim() - 1, k.dim(-2)));
    settled.dropout_box.offset[0] = random::first_sample();
    settled.dropout_box.global[0] += random::first_sample();
  }
  return settled;
}

}  // namespace

Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                      const AttentionLayerOptions& options) {
  if (q.ndim() == 2 && k.ndim() == 2 && v.ndim() == 2) {
    return select(
        scaled_dot_product_attention(unsqueeze(q, 0), unsqueeze(k, 0), unsqueeze(v, 0), options), 0,
        0);
  }
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("scaled_dot_product_attention"),
        [&](auto&... x) { return scaled_dot_product_attention(x..., options); }, q, k, v);
  const AttentionOptions settled = settle(options, q.tensor(), k.tensor());
  const AttentionResult result =
      scaled_dot_product_attention(q.tensor(), k.tensor(), v.tensor(), settled);
  std::optional<SavedTensor> mask;
  if (settled.mask.defined()) mask.emplace(settled.mask, kName);
  return record(kName, result.output, {q, k, v},
                [q = SavedTensor(q, kName), k = SavedTensor(k, kName), v = SavedTensor(v, kName),
                 output = SavedTensor(result.output, kName), settled, mask,
                 log_sum_exp = SavedTensor(result.log_sum_exp, kName)](const Tensor& dy,
                                                                       const BackwardContext&) {
                  if (mask) mask->unpack();  // throws where it was overwritten
                  AttentionInputs gradients = scaled_dot_product_attention_backward(
                      dy, {.q = q.unpack(), .k = k.unpack(), .v = v.unpack()},
                      {.output = output.unpack(), .log_sum_exp = log_sum_exp.unpack()}, settled);
                  return std::vector<Tensor>{std::move(gradients.q), std::move(gradients.k),
                                             std::move(gradients.v)};
                });
}

}  // namespace tessera
