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

/// A mask has one bit per element, which is set where the element is kept. Elements are taken in blocks
/// of 512 in row-major order; bit b of word w of a block belongs to element 16 b + w, so that loops over
/// 16 adjacent elements are loops over words.
inline constexpr std::int64_t kMaskBlock = 512, kMaskWords = 16;
inline std::int64_t mask_bytes(std::int64_t elements) {
  return (elements + kMaskBlock - 1) / kMaskBlock * kMaskWords *
         std::int64_t{sizeof(std::uint32_t)};
}

/// Dropout. Counter-based random numbers, found by position, decide which elements are kept.
struct DropoutKernel {
  static constexpr const char* kName = "dropout";
  /// y = u >= p ? scale * x : 0, where u is the f32 uniform number at first_position + i .
  /// position_strides, as RandomFillKernel draws it. x and y have one shape and floating dtype, any
  /// strides. `mask`, on the CPU only and if it is defined: u8 [mask_bytes(n)], contiguous.
  struct Args {
    ConstView x = {};
    View y = {};
    View mask = {};
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
    if (a.mask.defined()) f(a.mask);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// y = kept ? scale * x : 0. On the CPU only, where a mask takes less time to read than numbers take to draw again.
struct MaskedScaleKernel {
  static constexpr const char* kName = "masked_scale";
  /// x, y and mask as for DropoutKernel.
  struct Args {
    ConstView x = {};
    ConstView mask = {};
    View y = {};
    double scale = 1;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.mask);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
};

}  // namespace tessera
