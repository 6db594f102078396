#include "tessera/tests/fsdp/reference.h"

namespace tessera::testing {

Tensor random_rows(std::int64_t rows, std::int64_t width, DType dtype, std::uint64_t seed) {
  const Tensor x = Tensor::empty({rows, width}, {.dtype = dtype});
  random::fill_normal(x, random::named_key(seed, "rows"), random::whole(x.shape()), 0, 1);
  return x;
}

Tensor my_rows(const Tensor& x, const distributed::World& world) {
  const distributed::Chunk chunk = distributed::chunk_of(x.dim(0), world.size(), world.rank());
  return x.slice(0, chunk.begin, chunk.end);
}

Variable sharded_loss(const Variable& y, const distributed::World& world) {
  return nn::global_mean(mul(sum(square(y)), 0.5), y.dim(0), world.mesh());
}

Variable plain_loss(const Variable& y) {
  return mul(sum(square(y)), 0.5 / static_cast<double>(y.dim(0)));
}

double worst_error(const Tensor& a, const Tensor& b) {
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

Tensor box_rows(const Tensor& whole, const nn::Parameter& parameter) {
  const nn::ShardBox& box = parameter.spec().boxes.front();
  return whole.slice(0, box.offset[0], box.offset[0] + box.extent[0]);
}

std::string compare_with_reference(const nn::Module& sharded, const nn::Module& reference,
                                   double tolerance, bool gradients) {
  const auto left = sharded.named_parameters();
  const auto right = reference.named_parameters();
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
