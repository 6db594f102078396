#pragma once

// Attention with several heads by plain loops over f64, head by head.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tests/nn/support.h"

namespace tessera::testing {

// What is added to the score of (sample, head, query, key); -inf hides.
using ScoreBias =
    std::function<double(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>;
inline constexpr double kHidden = -std::numeric_limits<double>::infinity();

// A matrix [rows, columns], row-major.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> data;
  double& operator()(std::int64_t r, std::int64_t c) {
    return data[static_cast<std::size_t>(r * columns + c)];
  }
  double operator()(std::int64_t r, std::int64_t c) const {
    return data[static_cast<std::size_t>(r * columns + c)];
  }
};

// x w^T + b, w's rows [first, first + rows).
inline Matrix project(const Matrix& x, const Matrix& w, const std::vector<double>& b,
                      std::int64_t first, std::int64_t rows, std::int64_t bias_first) {
  Matrix y{x.rows, rows, std::vector<double>(static_cast<std::size_t>(x.rows * rows))};
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t o = 0; o < rows; ++o) {
      if (!b.empty()) y(r, o) = b[static_cast<std::size_t>(bias_first + o)];
      for (std::int64_t c = 0; c < x.columns; ++c) y(r, o) += x(r, c) * w(first + o, c);
    }
  }
  return y;
}

inline Matrix matrix_of(nn::Module& module, const std::string& name) {
  const Tensor t = module.get_parameter(name).local().tensor();
  return {t.dim(0), t.dim(1), values(t)};
}
inline std::vector<double> bias_of(nn::Module& module, const std::string& name, bool there) {
  return there ? values(module.get_parameter(name).local().tensor()) : std::vector<double>{};
}

struct ReferenceResult {
  std::vector<double> output;   // [batch, queries, dim]
  std::vector<double> weights;  // [batch, heads, queries, keys]
};

// One query: its probabilities over the keys, all 0 where it sees none.
inline std::vector<double> probabilities(std::vector<double> scores) {
  const double largest = scores.empty() ? kHidden : *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& s : scores) total += s = largest == kHidden ? 0 : std::exp(s - largest);
  for (double& s : scores) s = total > 0 ? s / total : 0;
  return scores;
}

// query [batch, queries, dim], key [batch, keys, kdim], value [batch, keys, vdim].
inline ReferenceResult attention_by_loops(nn::MultiheadAttention& layer,
                                          const nn::MultiheadAttentionOptions& options,
                                          const Tensor& query, const Tensor& key,
                                          const Tensor& value, const ScoreBias& bias) {
  const auto matrix = [](const Tensor& x) {
    return Matrix{x.dim(0) * x.dim(1), x.dim(2), values(x)};
  };
  const std::int64_t dim = options.dim, heads = options.heads, hd = dim / heads;
  const std::int64_t kv_heads = options.kv_heads > 0 ? options.kv_heads : heads;
  const std::int64_t kv = kv_heads * hd, queries = query.dim(1), keys = key.dim(1);
  const bool packed = options.kdim == 0 && options.vdim == 0;
  const auto weight = [&](const char* own) {
    return matrix_of(layer, packed ? "in_proj_weight" : own);
  };
  const std::vector<double> b = bias_of(layer, "in_proj_bias", options.bias);
  const Matrix q = project(matrix(query), weight("q_proj_weight"), b, 0, dim, 0);
  const Matrix k = project(matrix(key), weight("k_proj_weight"), b, packed ? dim : 0, kv, dim);
  const Matrix v =
      project(matrix(value), weight("v_proj_weight"), b, packed ? dim + kv : 0, kv, dim + kv);
  Matrix mixed{query.dim(0) * queries, dim, {}};
  mixed.data.resize(static_cast<std::size_t>(mixed.rows * dim));
  ReferenceResult out;
  for (std::int64_t n = 0; n < query.dim(0); ++n) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t from = h / (heads / kv_heads) * hd;  // first feature of its key-value head
      for (std::int64_t i = 0; i < queries; ++i) {
        std::vector<double> row;
        for (std::int64_t j = 0; j < keys; ++j) {
          double score = 0;
          for (std::int64_t c = 0; c < hd; ++c) {
            score += q(n * queries + i, h * hd + c) * k(n * keys + j, from + c);
          }
          row.push_back(score / std::sqrt(static_cast<double>(hd)) + bias(n, h, i, j));
        }
        row = probabilities(std::move(row));
        out.weights.insert(out.weights.end(), row.begin(), row.end());
        for (std::int64_t j = 0; j < keys; ++j) {
          for (std::int64_t c = 0; c < hd; ++c) {
            mixed(n * queries + i, h * hd + c) +=
                row[static_cast<std::size_t>(j)] * v(n * keys + j, from + c);
          }
        }
      }
    }
  }
  const std::vector<double> out_bias = bias_of(layer, "out_proj.bias", options.bias);
  out.output = project(mixed, matrix_of(layer, "out_proj.weight"), out_bias, 0, dim, 0).data;
  return out;
}

}  // namespace tessera::testing
