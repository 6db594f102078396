#pragma once

// Models with every kind of member, for tests of state dicts.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/support.h"

namespace tessera::testing {

using Names = std::vector<std::string>;

inline Names names(const nn::StateDict& state) {
  Names out;
  for (const auto& [name, value] : state) out.push_back(name);
  return out;
}

// Registered in another order than that of the state dict.
class Norm final : public nn::Layer<Norm> {
 public:
  explicit Norm(DType dtype = DType::kF32)
      : table({.shape = {2}, .init = nn::init::uniform(0, 1), .persistent = false}),
        mean({.shape = {2}, .dtype = dtype, .init = nn::init::zeros()}),
        count({.shape = {}, .dtype = DType::kI64, .init = nn::init::zeros()}),
        scale({.shape = {2}, .dtype = dtype, .init = nn::init::ones()}),
        up({.in = 2, .out = 3, .dtype = dtype}) {
    register_module("up", up);
    register_buffer("table", table);
    register_buffer("mean", mean);
    register_parameter("scale", scale);
    register_buffer("count", count);
  }
  Variable forward(const Variable& x) { return up(x); }
  nn::Buffer table, mean, count;
  nn::Parameter scale;
  nn::Linear up;
};

// One weight under three names, a module under two, a parameter twice in one module.
class Tied final : public nn::Layer<Tied> {
 public:
  Tied()
      : first({.in = 3, .out = 3, .bias = false}),
        second({.in = 3, .out = 3, .bias = false}),
        a({.shape = {2}, .init = nn::init::uniform(0, 1)}),
        b({.shape = {2}, .init = nn::init::ones()}) {
    nn::tie(first.weight(), second.weight());
    nn::tie(a, b);
    register_module("first", first);
    register_module("second", second);
    register_module("again", first);
    register_parameter("a", a);
    register_parameter("b", b);
  }
  Variable forward(const Variable& x) { return second(first(x)); }
  nn::Linear first, second;
  nn::Parameter a, b;
};

inline bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         cast(a, DType::kF64).to_vector<double>() == cast(b, DType::kF64).to_vector<double>();
}

inline void check_equal(nn::Module& a, nn::Module& b) {
  const nn::StateDict x = nn::state_dict(a), y = nn::state_dict(b);
  CHECK(names(x) == names(y));
  for (const auto& [name, value] : x) {
    INFO(name);
    CHECK(same(std::get<Tensor>(value), y.tensor(name)));
  }
}

inline std::string loading(nn::Module& module, const nn::StateDict& state,
                           const nn::LoadStateDictOptions& options = {}) {
  return thrown<InvalidArgument>([&] { nn::load_state_dict(module, state, options); });
}

inline constexpr const char* kLenientHelps = "; load with .strict = false to take what is there";
inline constexpr const char* kOnlyHelps =
    "; .only = {\"blocks.**\"} loads the names that match a pattern";

}  // namespace tessera::testing
