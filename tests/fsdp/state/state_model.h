#pragma once

// The model of the state tests: an uneven group, a group with one row, tied weights, buffers of
// three kinds.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/buffer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

/// first [7 -> 7] and tied [7 -> 7] share one weight; inner [7 -> 5]; head [5 -> 1], whose
/// parameters have one row. Buffers: scale [5], calls (i64), and table [5], which is not
/// persistent.
class StateNet final : public nn::Layer<StateNet> {
 public:
  explicit StateNet(DType dtype = DType::kF64)
      : first_({.in = 7, .out = 7, .dtype = dtype}),
        tied_({.in = 7, .out = 7, .dtype = dtype}),
        inner_({.in = 7, .out = 5, .dtype = dtype}),
        head_({.in = 5, .out = 1, .dtype = dtype}),
        scale_({.shape = {5}, .dtype = dtype, .init = nn::init::normal(1, 0.1)}),
        calls_({.shape = {}, .dtype = DType::kI64, .init = nn::init::zeros()}),
        table_(
            {.shape = {5}, .dtype = dtype, .init = nn::init::normal(0, 0.1), .persistent = false}) {
    register_module("first", first_);
    register_module("tied", tied_);
    register_module("inner", inner_);
    register_module("head", head_);
    register_buffer("scale", scale_);
    register_buffer("calls", calls_);
    register_buffer("table", table_);
    nn::Parameter& weight = first_.weight();
    nn::tie(weight, tied_.weight());
  }
  Variable forward(const Variable& x) {
    const Variable hidden = tanh(inner_(tanh(tied_(tanh(first_(x))))));
    return head_(add(mul(hidden, Variable(scale_.tensor())), Variable(table_.tensor())));
  }
  nn::Linear& inner() { return inner_; }
  nn::Linear& head() { return head_; }
  nn::Buffer& scale() { return scale_; }
  nn::Buffer& calls() { return calls_; }
  nn::Buffer& table() { return table_; }

 private:
  nn::Linear first_, tied_, inner_, head_;
  nn::Buffer scale_, calls_, table_;
};

enum class Sharded { kFully, kReplicated, kMixed };

/// Inner and head are groups of their own, the rest is the root's. Mixed: inner is replicated, the
/// others are sharded (1-D meshes only).
inline void shard_net(StateNet& net, const fsdp::FullyShardOptions& options,
                      Sharded how = Sharded::kFully) {
  const fsdp::ReplicateOptions whole = {.mesh = options.mesh,
                                        .mixed_precision = options.mixed_precision};
  for (nn::Module* module : std::vector<nn::Module*>{&net.inner(), &net.head(), &net}) {
    const bool replicated =
        how == Sharded::kReplicated || (how == Sharded::kMixed && module == &net.inner());
    if (replicated) {
      fsdp::replicate(*module, whole);
    } else {
      fsdp::fully_shard(*module, options);
    }
  }
}

/// Exact for numbers.
inline std::string value_text(const nn::StateValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:a}", *number);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "tensor";
}

/// Checks that both dicts have the same names in the same order, and bitwise equal values.
inline void check_same_state(RankTest& t, const nn::StateDict& actual,
                             const nn::StateDict& expected, const std::string& what) {
  const auto names = [](const nn::StateDict& state) {
    std::string out;
    for (const auto& [name, value] : state) out += name + " ";
    return out;
  };
  if (!t.check(names(actual) == names(expected), "{}: names {}, expected {}", what, names(actual),
               names(expected)))
    return;
  auto other = expected.begin();
  for (const auto& [name, value] : actual) {
    const nn::StateValue& wanted = (other++)->second;
    const auto* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr) {
      t.check(value.index() == wanted.index() && !std::holds_alternative<Tensor>(wanted) &&
                  value_text(value) == value_text(wanted),
              "{}: {} is {}, expected {}", what, name, value_text(value), value_text(wanted));
    } else if (t.check(std::holds_alternative<Tensor>(wanted), "{}: {} is a tensor", what, name)) {
      t.check_equal(*tensor, std::get<Tensor>(wanted), what + ": " + name);
    }
  }
}

/// Steps on batches that are equal on all ranks; step k has the batch first + k.
inline void train(StateNet& net, nn::optim::Optimizer& optimizer, int steps, int first = 0) {
  for (int step = 0; step < steps; ++step) {
    const Tensor x = random_rows(4, 7, net.inner().weight().dtype(),
                                 static_cast<std::uint64_t>(17 + first + step));
    backward(mean(square(net(Variable(x)))));
    optimizer.step();
    optimizer.zero_grad();
  }
}

}  // namespace tessera::testing
