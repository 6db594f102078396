#include "tessera/tools/bench/bench_gpu_ops_table.h"

#include "tessera/tensor/random.h"
#include "tessera/tools/bench/bench_gpu_support.h"

namespace tessera {

std::string OpInputs::next_name() { return "input" + std::to_string(made_++); }

Variable OpInputs::normal(const Shape& shape) {
  variables_.emplace_back(constant(shape), /*requires_grad=*/true);
  return variables_.back();
}

Variable OpInputs::positive(const Shape& shape) {
  const Tensor x = Tensor::empty(shape, options_);
  random::fill_uniform(x, random::named_key(1, next_name()), random::whole(shape), 0.5, 1.5);
  variables_.emplace_back(x, /*requires_grad=*/true);
  return variables_.back();
}

Tensor OpInputs::constant(const Shape& shape) {
  return random_tensor(shape, options_, next_name());
}

Tensor OpInputs::integers(std::int64_t high, const Shape& shape) {
  const Tensor x = Tensor::empty(shape, {.dtype = DType::kI64, .device = options_.device});
  random::fill_integers(x, random::named_key(1, next_name()), random::whole(shape), 0, high);
  return x;
}

const std::vector<BenchOp>& bench_ops() {
  static const std::vector<BenchOp> ops = [] {
    std::vector<BenchOp> all;
    add_elementwise_ops(all);
    add_reduction_ops(all);
    add_matmul_ops(all);
    add_nn_ops(all);
    add_image_ops(all);
    add_index_ops(all);
    add_shape_ops(all);
    add_optimizer_ops(all);
    return all;
  }();
  return ops;
}

}  // namespace tessera
