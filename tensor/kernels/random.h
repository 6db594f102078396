#pragma once

/// Random numbers and dropout. A number depends on its key and position alone.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// Fills a tensor with random numbers, each found by its position.
enum class Distribution : std::uint8_t {
  kUniform,          ///< offset + scale * u, u in [0, 1)
  kNormal,           ///< offset + scale * n, n standard normal
  kTruncatedNormal,  ///< offset + scale * n, n standard normal between low and high
  kBernoulli,        ///< 1 where u < scale, else 0
  kIntegers,         ///< offset + an integer in [0, range)
};

struct RandomFillKernel {
  static constexpr const char* kName = "random_fill";
  /// y[i] = the number at first_position + i . position_strides. y has any strides, and is floating
  /// except for kBernoulli and kIntegers. f64 numbers are drawn as f64; 16-bit ones are drawn as
  /// f32 and rounded.
  struct Args {
    View y = {};
    std::uint64_t key = 0;
    std::int64_t first_position = 0;
    Shape position_strides = {};
    Distribution distribution = Distribution::kUniform;
    double offset = 0;
    double scale = 1;
    double low = 0;           ///< for kTruncatedNormal, in standard deviations
    double high = 0;          ///< the same
    std::uint64_t range = 1;  ///< for kIntegers
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// Dropout. Counter-based random numbers, found by position, decide which elements are kept.
struct DropoutKernel {
  static constexpr const char* kName = "dropout";
  /// y = u >= p ? scale * x : 0, where u is the f32 uniform number at first_position + i .
  /// position_strides, as RandomFillKernel draws it. x and y have one shape and floating dtype, any
  /// strides.
  struct Args {
    ConstView x = {};
    View y = {};
    std::uint64_t key = 0;
    std::int64_t first_position = 0;
    Shape position_strides = {};
    double p = 0;
    double scale = 1;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
