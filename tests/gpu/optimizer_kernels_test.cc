// The CUDA kernels of the optimizers against the CPU's: the same bits, for every dtype of
// parameter, gradient and state, and for lists that need more than one launch.

#include <deque>

#include "tessera/tensor/kernels/optimizers.h"
#include "tessera/tests/gpu/comparison.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;

struct Dtypes {
  DType parameter, gradient, state;
};
constexpr Dtypes kDtypes[] = {
    {DType::kF32, DType::kF32, DType::kF32},  {DType::kF32, DType::kBF16, DType::kF32},
    {DType::kF32, DType::kF16, DType::kF32},  {DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32, DType::kF32}, {DType::kBF16, DType::kF16, DType::kF32},
    {DType::kF16, DType::kF16, DType::kF16},  {DType::kF16, DType::kF32, DType::kF32},
    {DType::kF64, DType::kF64, DType::kF64},  {DType::kF64, DType::kF32, DType::kF64},
    {DType::kF64, DType::kBF16, DType::kF64},
};

std::string text(const Dtypes& d) {
  return std::string(dtype_name(d.parameter)) + ", gradient " + dtype_name(d.gradient) +
         ", state " + dtype_name(d.state);
}

// The tensors of one run, to which arguments point. Each begins `first` elements after an aligned
// address.
class Tensors {
 public:
  View make(DType dtype, std::int64_t n, double low, double high, std::int64_t first = 0) {
    kept_.push_back(HostTensor(dtype, {n}, {1}, first).random(low, high, kept_.size()));
    return kept_.back();
  }
  ConstView make_const(DType dtype, std::int64_t n, double low, double high,
                       std::int64_t first = 0) {
    make(dtype, n, low, high, first);
    return kept_.back();
  }

 private:
  std::deque<HostTensor> kept_;
};

AdamKernel::Segment adam_segment(Tensors& tensors, const Dtypes& d, std::int64_t n,
                                 std::int64_t first = 0) {
  AdamKernel::Segment s;
  s.parameter = tensors.make(d.parameter, n, -2, 2, first);
  s.gradient = tensors.make_const(d.gradient, n, -1, 1, first);
  s.exp_avg = tensors.make(d.state, n, -1, 1, first);
  s.exp_avg_sq = tensors.make(d.state, n, 0, 1, first);
  s.step_size = 0.0123;
  s.root_scale = 1.7;
  s.beta1 = 0.9;
  s.beta2 = 0.99;
  s.eps = 1e-8;
  s.shrink = 0.999;
  return s;
}

TEST_CASE("adam on the GPU: the bits of the CPU, for all dtypes and lengths") {
  for (const Dtypes& d : kDtypes) {
    Tensors tensors;
    AdamKernel::Args args;
    for (std::int64_t n : {0, 1, 3, 4, 31, 1025, 4096, 4099})
      args.segments.push_back(adam_segment(tensors, d, n));
    args.segments.push_back(adam_segment(tensors, d, 1025, 1));
    args.segments[3].coupled_decay = 0.1;
    args.segments[4].gradient_sign = -1;
    args.segments[5].beta1 = 0.5;
    compare_devices<AdamKernel>(text(d), args);
  }
}

TEST_CASE("adam on the GPU: amsgrad") {
  for (const Dtypes& d : kDtypes) {
    Tensors tensors;
    AdamKernel::Args args;
    for (std::int64_t n : {1, 130, 5001}) {
      args.segments.push_back(adam_segment(tensors, d, n));
      args.segments.back().max_exp_avg_sq = tensors.make(d.state, n, 0, 1);
    }
    compare_devices<AdamKernel>(text(d), args);
  }
}

TEST_CASE("adam on the GPU: a copy of the parameter in any floating dtype") {
  for (const Dtypes& d : kDtypes) {
    for (DType copy : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      Tensors tensors;
      AdamKernel::Args args;
      for (std::int64_t first : {0, 1, 2}) {
        args.segments.push_back(adam_segment(tensors, d, 1027));
        args.segments.back().copy = tensors.make(copy, 1027, 0, 1, first);
      }
      compare_devices<AdamKernel>(text(d) + ", copy " + dtype_name(copy), args);
    }
  }
}

TEST_CASE("optimizers on the GPU: more segments than one launch takes, dtypes mixed") {
  Tensors tensors;
  AdamKernel::Args adam;
  LionKernel::Args lion;
  for (int i = 0; i < 700; ++i) {
    const Dtypes& d = kDtypes[static_cast<std::size_t>(i) % std::size(kDtypes)];
    adam.segments.push_back(adam_segment(tensors, d, i % 7));
    LionKernel::Segment s;
    s.parameter = tensors.make(d.parameter, i % 5, -2, 2);
    s.gradient = tensors.make_const(d.gradient, i % 5, -1, 1);
    s.exp_avg = tensors.make(d.state, i % 5, -1, 1);
    s.lr = 0.1;
    lion.segments.push_back(s);
  }
  compare_devices<AdamKernel>("700 segments", adam);
  compare_devices<LionKernel>("700 segments", lion);
}

SgdKernel::Segment sgd_segment(Tensors& tensors, const Dtypes& d, std::int64_t n, int variant) {
  SgdKernel::Segment s;
  s.parameter = tensors.make(d.parameter, n, -2, 2, variant % 2);
  s.gradient = tensors.make_const(d.gradient, n, -1, 1);
  s.lr = 0.03;
  s.weight_decay = 0.01 * (variant % 3);
  s.maximize = variant % 4 == 3;
  if (variant == 0) return s;
  s.momentum = tensors.make(d.state, n, -1, 1);
  s.momentum_factor = 0.9;
  s.dampening = 0.1;
  s.nesterov = variant == 2;
  s.first_step = variant == 3;
  return s;
}

TEST_CASE("sgd on the GPU: the bits of the CPU") {
  for (const Dtypes& d : kDtypes) {
    Tensors tensors;
    SgdKernel::Args args;
    for (int variant = 0; variant < 5; ++variant) {
      for (std::int64_t n : {0, 1, 33, 255, 4103})
        args.segments.push_back(sgd_segment(tensors, d, n, variant));
    }
    compare_devices<SgdKernel>(text(d), args);
  }
}

TEST_CASE("lion on the GPU: the bits of the CPU") {
  for (const Dtypes& d : kDtypes) {
    Tensors tensors;
    LionKernel::Args args;
    for (std::int64_t n : {0, 1, 3, 33, 1025, 8200}) {
      LionKernel::Segment s;
      s.parameter = tensors.make(d.parameter, n, -2, 2);
      // Zeros without signs.
      s.gradient = tensors.make_const(d.gradient, n, n == 33 ? 0 : -1, n == 33 ? 0 : 1);
      s.exp_avg = tensors.make(d.state, n, n == 33 ? 0 : -1, n == 33 ? 0 : 1, n % 2);
      s.lr = 0.01;
      s.beta1 = 0.9;
      s.beta2 = 0.99;
      s.shrink = 0.99;
      s.gradient_sign = n == 3 ? -1 : 1;
      args.segments.push_back(s);
    }
    compare_devices<LionKernel>(text(d), args);
  }
}

TEST_CASE("optimizers on the GPU: gradients that count as multiplied") {
  HostTensor scale(DType::kF64, {}, {});
  *static_cast<double*>(View(scale).data) = 0.37;
  for (const Dtypes& d : kDtypes) {
    Tensors tensors;
    AdamKernel::Args adam;
    LionKernel::Args lion;
    SgdKernel::Args sgd;
    for (std::int64_t n : {0, 3, 1027}) {
      adam.segments.push_back(adam_segment(tensors, d, n));
      adam.segments.back().gradient_sign = -1;
      for (int variant : {0, 1, 3}) sgd.segments.push_back(sgd_segment(tensors, d, n, variant));
      LionKernel::Segment s;
      s.parameter = tensors.make(d.parameter, n, -2, 2);
      s.gradient = tensors.make_const(d.gradient, n, -1, 1);
      s.exp_avg = tensors.make(d.state, n, -1, 1);
      s.lr = 0.1;
      s.beta1 = 0.9;
      lion.segments.push_back(s);
    }
    adam.gradient_scale = lion.gradient_scale = sgd.gradient_scale = scale;
    compare_devices<AdamKernel>(text(d), adam);
    compare_devices<LionKernel>(text(d), lion);
    compare_devices<SgdKernel>(text(d), sgd);
  }
}

}  // namespace
}  // namespace tessera
