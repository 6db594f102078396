#pragma once

/// Fills a tensor with random numbers, each found by its position.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

enum class Distribution : std::uint8_t { kUniform, kNormal };

struct RandomFillKernel {
  static constexpr const char* kName = "random_fill";
  /// y[i] = offset + scale * (number at first_position + i . position_strides); y floating, any
  /// strides.
  struct Args {
    View y = {};
    std::uint64_t key = 0;
    std::int64_t first_position = 0;
    Shape position_strides = {};
    Distribution distribution = Distribution::kUniform;
    double offset = 0;
    double scale = 1;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
};

}  // namespace tessera
