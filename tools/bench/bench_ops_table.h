#pragma once

// The operations that bench_ops measures. bench_ops_torch.py finds each by its name in
// torch_twins.py and runs it with the same extents: add a new one there too.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

// Makes an operation's inputs. Backward computes the gradients of those that it made.
class OpInputs {
 public:
  explicit OpInputs(const TensorOptions& options) : options_(options) {}

  // Standard normal, and uniform from 0.5 to 1.5. They require gradients.
  Variable normal(const Shape& shape);
  Variable positive(const Shape& shape);
  // Standard normal, without a gradient.
  Tensor constant(const Shape& shape);
  // Whole numbers below `high`, as i64.
  Tensor integers(std::int64_t high, const Shape& shape);

  const TensorOptions& options() const { return options_; }
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  std::string next_name();

  TensorOptions options_;
  std::vector<Variable> variables_;
  int made_ = 0;
};

// Runs the operation once. Undefined if it has no result.
using OpCall = std::function<Variable()>;

// What an operation is measured with: on a GPU, which only large operands keep busy; on the CPU;
// and once, small, without times.
struct BenchShapes {
  std::vector<Shape> gpu, cpu;
  Shape smoke;
};

struct BenchOp {
  std::string_view name;
  // The extents from which `make` makes inputs; their meaning depends on the operation.
  BenchShapes shapes;
  bool has_backward = true;
  // f32 only; otherwise bf16 too.
  bool only_f32 = false;
  std::function<OpCall(OpInputs&, const Shape&)> make;
};

const std::vector<BenchOp>& bench_ops();

// The parts of the list.
void add_elementwise_ops(std::vector<BenchOp>& all);
void add_reduction_ops(std::vector<BenchOp>& all);
void add_matmul_ops(std::vector<BenchOp>& all);
void add_nn_ops(std::vector<BenchOp>& all);
void add_image_ops(std::vector<BenchOp>& all);
void add_index_ops(std::vector<BenchOp>& all);
void add_shape_ops(std::vector<BenchOp>& all);
void add_optimizer_ops(std::vector<BenchOp>& all);

}  // namespace tessera
