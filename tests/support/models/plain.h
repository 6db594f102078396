#pragma once

// The layers of small models in plain loops, and helpers for tests of models.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/random.h"

namespace tessera::testing {

using Rows = std::vector<std::vector<double>>;

inline Rows rows_of(const Tensor& x) {
  const auto columns = static_cast<std::size_t>(x.shape().back());
  Rows out(static_cast<std::size_t>(x.numel()) / columns, std::vector<double>(columns));
  const std::vector<double> values = x.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) out[i / columns][i % columns] = values[i];
  return out;
}

/// x W^T + b with the parameters of the Linear named `layer`; without b if it has no bias.
inline Rows plain_linear(nn::Module& model, const std::string& layer, const Rows& x) {
  nn::Module& linear = model.get_submodule(layer);
  const Rows weight = rows_of(linear.get_parameter("weight").local().tensor());
  std::vector<double> bias(weight.size());
  if (linear.own_parameters().size() == 2) {
    bias = linear.get_parameter("bias").local().tensor().to_vector<double>();
  }
  Rows y;
  for (const auto& row : x) {
    y.push_back(bias);
    for (std::size_t o = 0; o < bias.size(); ++o) {
      for (std::size_t i = 0; i < row.size(); ++i) y.back()[o] += weight[o][i] * row[i];
    }
  }
  return y;
}

inline Rows plain_relu(Rows x) {
  for (auto& row : x) {
    for (double& value : row) value = std::max(value, 0.0);
  }
  return x;
}

/// The largest difference between two sets of rows; infinite if their shapes differ.
inline double distance(const Rows& a, const Rows& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double worst = a.size() == b.size() ? 0 : kInfinity;
  for (std::size_t r = 0; worst != kInfinity && r < a.size(); ++r) {
    if (a[r].size() != b[r].size()) return kInfinity;
    for (std::size_t c = 0; c < a[r].size(); ++c) {
      const double error = std::abs(a[r][c] - b[r][c]);
      if (!(error <= worst)) worst = std::isnan(error) ? kInfinity : error;
    }
  }
  return worst;
}

inline Tensor normal_rows(const Shape& shape, std::uint64_t seed, DType dtype = DType::kF64) {
  const Tensor x = Tensor::empty(shape, {.dtype = dtype});
  random::fill_normal(x, random::named_key(seed, "rows"), random::whole(shape), 0, 1);
  return x;
}

inline std::vector<std::string> parameter_names(const nn::Module& model) {
  std::vector<std::string> out;
  for (const nn::NamedParameter& named : model.named_parameters()) out.push_back(named.name);
  return out;
}
inline std::vector<std::string> module_names(nn::Module& model) {
  std::vector<std::string> out;
  for (const nn::NamedModule& named : model.named_modules()) out.push_back(named.name);
  return out;
}
/// The names of some of the modules, "" for the model itself.
inline std::vector<std::string> names_of(nn::Module& model,
                                         const std::vector<nn::Module*>& modules) {
  std::vector<std::string> out;
  for (const nn::Module* wanted : modules) {
    for (const nn::NamedModule& named : model.named_modules()) {
      if (named.module == wanted) out.push_back(named.name);
    }
  }
  return out;
}
inline std::int64_t elements(const nn::Module& model) {
  std::int64_t out = 0;
  for (const nn::Parameter& parameter : model.parameters()) out += parameter.shape().numel();
  return out;
}

}  // namespace tessera::testing
