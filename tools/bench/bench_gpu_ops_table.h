#pragma once

// The operations that bench_gpu_ops measures. bench_gpu_ops_torch.py knows each of them by its
// name, and makes the same of the same extents: whoever adds one here adds it there.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

// Makes an operation's inputs. Those it has handed out are what backward goes to.
class OpInputs {
 public:
  explicit OpInputs(const TensorOptions& options) : options_(options) {}

  // Standard normal, and uniform from 0.5 to 1.5. They require gradients.
  Variable normal(const Shape& shape);
  Variable positive(const Shape& shape);
  // Standard normal, without a gradient.
  Tensor constant(const Shape& shape);
  // Whole numbers below `high`: i64.
  Tensor integers(std::int64_t high, const Shape& shape);

  const TensorOptions& options() const { return options_; }
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  std::string next_name();

  TensorOptions options_;
  std::vector<Variable> variables_;
  int made_ = 0;
};

// Runs it once. Undefined where it has no result.
using OpCall = std::function<Variable()>;

struct BenchOp {
  std::string_view name;
  // What `make` makes inputs of; what each extent is, the operation says.
  std::vector<Shape> shapes;
  Shape smoke_shape;
  bool has_backward = true;
  // Of f32 only; else of bf16 too.
  bool only_f32 = false;
  std::function<OpCall(OpInputs&, const Shape&)> make;
};

const std::vector<BenchOp>& bench_ops();

// Its parts.
void add_elementwise_ops(std::vector<BenchOp>& all);
void add_reduction_ops(std::vector<BenchOp>& all);
void add_matmul_ops(std::vector<BenchOp>& all);
void add_nn_ops(std::vector<BenchOp>& all);
void add_image_ops(std::vector<BenchOp>& all);
void add_index_ops(std::vector<BenchOp>& all);
void add_shape_ops(std::vector<BenchOp>& all);
void add_optimizer_ops(std::vector<BenchOp>& all);

}  // namespace tessera
