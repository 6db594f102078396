#pragma once

/// Activations as layers, for containers; in code of your own call relu(x), gelu(x) and their like
/// of autograd/ops/ops.h.
///
/// Any shape, elementwise but for Softmax, LogSoftmax, GLU and PReLU; no parameters but PReLU's.
/// Floating dtypes; y has x's, and 16-bit ones are computed in f32 and rounded once. NaN stays NaN.
/// At a kink the derivative is PyTorch's: 0 for functions that are flat on one side. At NaN it
/// is NaN or a slope that hides nothing (1 for ReLU and its like); but Hardsigmoid's is 0, as
/// PyTorch's.
///
/// Left out of PyTorch's options: inplace (autograd needs the input, so it would save nothing), and
/// Softplus's threshold (ours is exact for every x). Left out of its activations: RReLU, whose
/// slopes are random.

#include <cstdint>

#include "tessera/nn/layer.h"

namespace tessera::nn {

/// max(x, 0).
class ReLU final : public Layer<ReLU> {
 public:
  Variable forward(const Variable& x);
};

/// min(max(x, 0), 6).
class ReLU6 final : public Layer<ReLU6> {
 public:
  Variable forward(const Variable& x);
};

struct LeakyReLUOptions {
  double negative_slope = 0.01;
};
/// x where x > 0, else negative_slope x.
class LeakyReLU final : public Layer<LeakyReLU> {
 public:
  using Options = LeakyReLUOptions;
  explicit LeakyReLU(const LeakyReLUOptions& options = {}) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  LeakyReLUOptions options_;
};

struct PReLUOptions {
  std::int64_t channels = 1;  ///< 1: one slope for all; else the extent of dim 1
  double init = 0.25;
  DType dtype = DType::kF32;
};
/// x where x > 0, else weight x: LeakyReLU with slopes that are trained, weight [channels]. (He and
/// others, "Delving deep into rectifiers", 2015.)
class PReLU final : public Layer<PReLU> {
 public:
  using Options = PReLUOptions;
  /// Throws InvalidArgument for channels below 1.
  explicit PReLU(const PReLUOptions& options = {});
  /// Throws InvalidArgument when dim 1 has not `channels` entries, or the dtype differs.
  Variable forward(const Variable& x);

  Parameter& weight() { return weight_; }

 private:
  Parameter weight_;
};

struct ELUOptions {
  double alpha = 1;
};
/// max(x, 0) + alpha (exp(min(x, 0)) - 1). (Clevert and others, 2015.)
class ELU final : public Layer<ELU> {
 public:
  using Options = ELUOptions;
  explicit ELU(const ELUOptions& options = {}) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  ELUOptions options_;
};

struct CELUOptions {
  double alpha = 1;  ///< not 0
};
/// max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1): ELU with slope 1 at 0. (Barron, 2017.)
class CELU final : public Layer<CELU> {
 public:
  using Options = CELUOptions;
  /// Throws InvalidArgument for alpha = 0.
  explicit CELU(const CELUOptions& options = {});
  Variable forward(const Variable& x);

 private:
  CELUOptions options_;
};

/// scale (max(x, 0) + alpha (exp(min(x, 0)) - 1)) with scale = 1.0507 and alpha = 1.6733, at which
/// mean 0 and variance 1 stay. (Klambauer and others, "Self-normalizing neural networks", 2017.)
class SELU final : public Layer<SELU> {
 public:
  Variable forward(const Variable& x);
};

enum class GELUApproximate : std::uint8_t {
  kNone,  ///< x Phi(x), Phi the standard normal distribution function: through erf
  kTanh,  ///< x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};
struct GELUOptions {
  GELUApproximate approximate = GELUApproximate::kNone;
};
/// Hendrycks and Gimpel, "Gaussian error linear units", 2016.
class GELU final : public Layer<GELU> {
 public:
  using Options = GELUOptions;
  explicit GELU(const GELUOptions& options = {}) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  GELUOptions options_;
};

/// x sigmoid(x), also called swish.
class SiLU final : public Layer<SiLU> {
 public:
  Variable forward(const Variable& x);
};

/// x tanh(softplus(x)). (Misra, 2019.)
class Mish final : public Layer<Mish> {
 public:
  Variable forward(const Variable& x);
};

/// 1 / (1 + exp(-x)).
class Sigmoid final : public Layer<Sigmoid> {
 public:
  Variable forward(const Variable& x);
};

/// log(sigmoid(x)), without overflow.
class LogSigmoid final : public Layer<LogSigmoid> {
 public:
  Variable forward(const Variable& x);
};

/// min(max(x + 3, 0), 6) / 6.
class Hardsigmoid final : public Layer<Hardsigmoid> {
 public:
  Variable forward(const Variable& x);
};

/// x min(max(x + 3, 0), 6) / 6. (Howard and others, "Searching for MobileNetV3", 2019.)
class Hardswish final : public Layer<Hardswish> {
 public:
  Variable forward(const Variable& x);
};

class Tanh final : public Layer<Tanh> {
 public:
  Variable forward(const Variable& x);
};

struct HardtanhOptions {
  double min_val = -1;
  double max_val = 1;  ///< above min_val
};
/// min(max(x, min_val), max_val).
class Hardtanh final : public Layer<Hardtanh> {
 public:
  using Options = HardtanhOptions;
  /// Throws InvalidArgument unless min_val < max_val.
  explicit Hardtanh(const HardtanhOptions& options = {});
  Variable forward(const Variable& x);

 private:
  HardtanhOptions options_;
};

struct SoftplusOptions {
  double beta = 1;  ///< not 0
};
/// log(1 + exp(beta x)) / beta, without overflow.
class Softplus final : public Layer<Softplus> {
 public:
  using Options = SoftplusOptions;
  /// Throws InvalidArgument for beta = 0.
  explicit Softplus(const SoftplusOptions& options = {});
  Variable forward(const Variable& x);

 private:
  SoftplusOptions options_;
};

/// x / (1 + |x|).
class Softsign final : public Layer<Softsign> {
 public:
  Variable forward(const Variable& x);
};

/// x - tanh(x).
class Tanhshrink final : public Layer<Tanhshrink> {
 public:
  Variable forward(const Variable& x);
};

struct ShrinkOptions {
  double lambd = 0.5;
};
/// x where |x| > lambd, else 0.
class Hardshrink final : public Layer<Hardshrink> {
 public:
  using Options = ShrinkOptions;
  explicit Hardshrink(const ShrinkOptions& options = {}) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  ShrinkOptions options_;
};

/// x - lambd above lambd, x + lambd below -lambd, else 0.
class Softshrink final : public Layer<Softshrink> {
 public:
  using Options = ShrinkOptions;
  /// Throws InvalidArgument for a negative lambd.
  explicit Softshrink(const ShrinkOptions& options = {});
  Variable forward(const Variable& x);

 private:
  ShrinkOptions options_;
};

struct ThresholdOptions {
  double threshold = 0;
  double value = 0;
};
/// x where x > threshold, else value.
class Threshold final : public Layer<Threshold> {
 public:
  using Options = ThresholdOptions;
  explicit Threshold(const ThresholdOptions& options) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  ThresholdOptions options_;
};

struct SoftmaxOptions {
  int dim = -1;  ///< what sums to 1; negative ones count from the back
};
/// exp(x) / sum of exp(x) over `dim`, without overflow.
class Softmax final : public Layer<Softmax> {
 public:
  using Options = SoftmaxOptions;
  explicit Softmax(const SoftmaxOptions& options = {}) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  SoftmaxOptions options_;
};

/// Its logarithm.
class LogSoftmax final : public Layer<LogSoftmax> {
 public:
  using Options = SoftmaxOptions;
  explicit LogSoftmax(const SoftmaxOptions& options = {}) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  SoftmaxOptions options_;
};

/// Softmax of -x.
class Softmin final : public Layer<Softmin> {
 public:
  using Options = SoftmaxOptions;
  explicit Softmin(const SoftmaxOptions& options = {}) : options_(options) {}
  Variable forward(const Variable& x);

 private:
  SoftmaxOptions options_;
};

/// Softmax over the channels of [samples, channels, height, width] or [channels, height, width].
class Softmax2d final : public Layer<Softmax2d> {
 public:
  /// Throws InvalidArgument for an input of other dims.
  Variable forward(const Variable& x);
};

struct GLUOptions {
  int dim = -1;  ///< which is halved; negative ones count from the back
};
/// a sigmoid(b), a and b the halves of x. (Dauphin and others, "Language modeling with gated
/// convolutional networks", 2016.)
class GLU final : public Layer<GLU> {
 public:
  using Options = GLUOptions;
  explicit GLU(const GLUOptions& options = {}) : options_(options) {}
  /// Throws InvalidArgument for an odd extent.
  Variable forward(const Variable& x);

 private:
  GLUOptions options_;
};

}  // namespace tessera::nn
