#pragma once

/// The reference that sharded training is compared with: the same model, unsharded, trained by
/// every rank on the whole batch.

#include <cmath>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops.h"
#include "tessera/distributed/mesh_impl.h"
#include "tessera/distributed/placement.h"
#include "tessera/distributed/world.h"
#include "tessera/nn/loss.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/random.h"

namespace tessera::testing {

inline constexpr nn::optim::SgdOptions kSgd = {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01};

/// A batch of rows that every rank makes alike.
inline Tensor random_rows(std::int64_t rows, std::int64_t width, DType dtype, std::uint64_t seed) {
  const Tensor x = Tensor::empty({rows, width}, {.dtype = dtype});
  random::fill_normal(x, random::named_key(seed, "rows"), random::whole(x.shape()), 0, 1);
  return x;
}

/// This rank's rows of a batch.
inline Tensor my_rows(const Tensor& x, const distributed::World& world) {
  const distributed::Chunk chunk = distributed::chunk_of(x.dim(0), world.size(), world.rank());
  return x.slice(0, chunk.begin, chunk.end);
}

/// Half the sum of squares of the model's outputs, as the mean over the rows of the whole batch.
inline Variable sharded_loss(const Variable& y, const distributed::World& world) {
  return nn::global_mean(mul(sum(square(y)), 0.5), y.dim(0), *distributed::make_mesh(world.mesh()));
}
inline Variable plain_loss(const Variable& y) {
  return mul(sum(square(y)), 0.5 / static_cast<double>(y.dim(0)));
}

/// The largest |a - b| / max(1, |b|) over all elements; infinity when shapes differ or something is
/// not finite.
inline double worst_error(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return INFINITY;
  const std::vector<double> left = cast(a, DType::kF64).to_vector<double>();
  const std::vector<double> right = cast(b, DType::kF64).to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double error = std::abs(left[i] - right[i]) / std::max(1.0, std::abs(right[i]));
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

/// The rows of a whole tensor that a parameter's local() holds.
inline Tensor box_rows(const Tensor& whole, const nn::Parameter& parameter) {
  const nn::ShardBox& box = parameter.spec().boxes.front();
  return whole.slice(0, box.offset[0], box.offset[0] + box.extent[0]);
}

/// Worst error of every local() against the twin's, and of every grad() when `gradients`; names
/// must agree. The message is empty when all are within `tolerance`.
inline std::string compare_with_twin(const nn::Module& sharded, const nn::Module& twin,
                                     double tolerance, bool gradients = false) {
  const auto left = sharded.named_parameters();
  const auto right = twin.named_parameters();
  if (left.size() != right.size()) return "the models have different numbers of parameters";
  for (std::size_t i = 0; i < left.size(); ++i) {
    const nn::Parameter& a = left[i].parameter;
    const nn::Parameter& b = right[i].parameter;
    if (left[i].name != right[i].name) return left[i].name + " against " + right[i].name;
    const double error = worst_error(a.local().tensor(), box_rows(b.local().tensor(), a));
    if (error > tolerance) return left[i].name + " differs by " + std::to_string(error);
    if (!gradients) continue;
    if (a.grad().defined() != b.grad().defined())
      return left[i].name + ": only one of the two has a gradient";
    if (!a.grad().defined()) continue;
    const double grad_error = worst_error(a.grad(), box_rows(b.grad(), a));
    if (grad_error > tolerance)
      return left[i].name + ": gradient differs by " + std::to_string(grad_error);
  }
  return {};
}

}  // namespace tessera::testing
