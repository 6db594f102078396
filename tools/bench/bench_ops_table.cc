#include "tessera/tools/bench/bench_ops_table.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/ops.h"
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

namespace {

// Operations that select, place and move elements, and create tensors.

// [rows, columns, number of chosen elements]
BenchOp chosen(std::string_view name, std::function<OpCall(OpInputs&, const Shape&)> make) {
  return {.name = name,
          .shapes = {.gpu = {{8192, 4096, 1024}, {64, 64, 16}},
                     .cpu = {{2048, 1024, 256}, {64, 64, 16}},
                     .smoke = {6, 10, 4}},
          .make = std::move(make)};
}

// [rows, columns]
BenchOp moved(std::string_view name, std::function<Variable(const Variable&)> function) {
  return {.name = name,
          .shapes = {.gpu = {{8192, 4096}, {64, 64}},
                     .cpu = {{2048, 1024}, {64, 64}},
                     .smoke = {6, 10}},
          .make = [function](OpInputs& in, const Shape& s) -> OpCall {
            return [function, x = in.normal(s)] { return function(x); };
          }};
}

BenchOp made(std::string_view name,
             std::function<Tensor(const Shape&, const TensorOptions&)> function) {
  BenchOp op = moved(name, {});
  op.has_backward = false;
  op.make = [function](OpInputs& in, const Shape& s) -> OpCall {
    return [function, s, options = in.options()] { return Variable(function(s, options)); };
  };
  return op;
}

void add_scatters(std::vector<BenchOp>& all) {
  all.push_back(chosen("scatter", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[1]}), index = in.integers(s[1], {s[0], s[2]}),
            source = in.normal({s[0], s[2]})] { return scatter(x, 1, index, source); };
  }));
  all.push_back(chosen("scatter_add", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[1]}), index = in.integers(s[1], {s[0], s[2]}),
            source = in.normal({s[0], s[2]})] { return scatter_add(x, 1, index, source); };
  }));
  all.push_back(chosen("index_put", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[1]}), rows = in.integers(s[0], {s[2]}),
            values = in.normal({s[2], s[1]})] { return index_put(x, {rows}, values); };
  }));
  all.push_back(chosen("index_put_add", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[1]}), rows = in.integers(s[0], {s[2]}),
            values = in.normal({s[2], s[1]})] {
      return index_put(x, {rows}, values, {.accumulate = true});
    };
  }));
}

}  // namespace

void add_index_ops(std::vector<BenchOp>& all) {
  add_scatters(all);
  all.push_back(chosen("gather", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[1]}), index = in.integers(s[1], {s[0], s[2]})] {
      return gather(x, 1, index);
    };
  }));
  all.push_back(chosen("take_along_dim", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[1]}), index = in.integers(s[0], {s[2], 1})] {
      return take_along_dim(x, index, 0);
    };
  }));
  all.push_back(chosen("index_select_rows", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[1]}), index = in.integers(s[0], {s[2]})] {
      return index_select(x, 0, index);
    };
  }));
  all.push_back(chosen("index_select_columns", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[1]}), index = in.integers(s[1], {s[2]})] {
      return index_select(x, 1, index);
    };
  }));
  all.push_back(chosen("index_pairs", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal({s[0], s[1]}), rows = in.integers(s[0], {s[2]}),
            columns = in.integers(s[1], {s[2]})] {
      return index(x, {rows, columns});
    };
  }));
  all.push_back(chosen("masked_fill", [](OpInputs& in, const Shape& s) -> OpCall {
    const Shape matrix = {s[0], s[1]};
    return [x = in.normal(matrix), mask = gt(in.constant(matrix), 0)] {
      return masked_fill(x, mask, 0);
    };
  }));
  BenchOp hot = chosen("one_hot", [](OpInputs& in, const Shape& s) -> OpCall {
    return [index = in.integers(s[1], {s[0]}), classes = s[1]] {
      return Variable(one_hot(index, classes));
    };
  });
  hot.has_backward = false;
  hot.only_f32 = true;
  all.push_back(hot);
}

void add_shape_ops(std::vector<BenchOp>& all) {
  all.push_back(moved("cat_rows", [](const Variable& x) { return cat({x, x}, 0); }));
  all.push_back(moved("cat_columns", [](const Variable& x) { return cat({x, x}, 1); }));
  all.push_back(moved("stack", [](const Variable& x) { return stack({x, x}, 1); }));
  all.push_back(
      moved("transpose_copy", [](const Variable& x) { return clone(transpose(x, 0, 1)); }));
  all.push_back(
      moved("slice_copy", [](const Variable& x) { return clone(narrow(x, 1, 0, x.dim(1) / 2)); }));
  all.push_back(moved("expand_copy", [](const Variable& x) {
    return clone(expand(unsqueeze(x, 1), {x.dim(0), 2, x.dim(1)}));
  }));
  all.push_back(moved("pad", [](const Variable& x) { return pad(x, {{1, 1}, {2, 2}}); }));
  all.push_back(moved("roll", [](const Variable& x) { return roll(x, 3, 1); }));
  all.push_back(moved("flip", [](const Variable& x) { return flip(x, {1}); }));
  all.push_back(moved("repeat", [](const Variable& x) { return repeat(x, {2, 1}); }));
  all.push_back(
      moved("repeat_interleave", [](const Variable& x) { return repeat_interleave(x, 2, 1); }));
  all.push_back(moved("tril", [](const Variable& x) { return tril(x); }));
  all.push_back(moved("triu", [](const Variable& x) { return triu(x); }));
  all.push_back(moved("split_and_cat", [](const Variable& x) {
    const std::vector<Variable> halves = split(x, x.dim(1) / 2, 1);
    return cat({halves[1], halves[0]}, 1);
  }));
  all.push_back(made("bernoulli", [](const Shape& s, const TensorOptions& options) {
    return bernoulli(full(s, 0.25, options));
  }));
  all.push_back(made("arange", [](const Shape& s, const TensorOptions& options) {
    return arange(s.numel(), {.device = options.device});
  }));
  all.push_back(made("zeros", zeros));
  all.push_back(made("rand", rand));
  all.push_back(made("randn", randn));
}

}  // namespace tessera
