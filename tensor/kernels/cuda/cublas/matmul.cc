#include "tessera/tensor/kernels/matmul.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tessera/tensor/kernels/cuda/cublas/cublas_lt.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_finish.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_parts.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"
#include "tessera/tensor/tf32.h"

namespace tessera {
namespace {

using cuda::FinishWork;
using cuda::LtOperands;
using cuda::LtProduct;
using cuda::MatmulCall;
using cuda::MatmulPlan;
using cuda::MatmulScratch;

template <class Data>
Data* at(Data* data, DType dtype, std::int64_t elements) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + elements * static_cast<std::int64_t>(dtype_size(dtype));
}

// One launch, call by call.
class Launch {
 public:
  Launch(CudaStream stream, const MatmulKernel::Args& args, Workspace scratch)
      : stream_(stream), args_(args), plan_(cuda::plan_matmul(args, {.tf32 = tf32_allowed()})) {
    const MatmulScratch sizes = cuda::matmul_scratch(args, plan_);
    auto* bytes = static_cast<std::byte*>(scratch.data);
    bias_room_ = bytes;
    product_room_ = bytes + sizes.bias;
    library_ = {.data = bytes + sizes.bias + sizes.product, .bytes = sizes.library};
  }

  void run() {
    if (args_.bias.defined() && !plan_.staged) settle_bias();
    for (std::int64_t i = 0; i < plan_.calls; ++i) {
      const MatmulCall call = plan_.call(i);
      plan_.staged ? run_staged(call) : run_direct(call);
    }
  }

 private:
  void settle_bias() {
    bias_ = args_.bias.data;
    if (cuda::takes_bias(args_)) return;
    cuda::convert_bias(stream_, args_.bias, bias_room_, args_.c.dtype);
    bias_ = bias_room_;
  }

  void* result_of(const MatmulCall& call) const { return at(args_.c.data, args_.c.dtype, call.c); }
  void* before_of(const MatmulCall& call) const {
    return args_.before.defined() ? at(args_.before.data, args_.before.dtype, call.before)
                                  : nullptr;
  }
  LtOperands operands_of(const MatmulCall& call) const {
    return {.first = at(args_.b.data, args_.b.dtype, call.b),
            .second = at(args_.a.data, args_.a.dtype, call.a),
            .result = nullptr,
            .bias = bias_,
            .aux = nullptr};
  }
  static LtProduct with_batch(const LtProduct& product, const MatmulCall& call) {
    LtProduct out = product;
    out.batch = call.batch;
    return out;
  }

  FinishWork finish_of(const MatmulCall& call) const {
    FinishWork work;
    work.result = {.data = result_of(call),
                   .dtype = args_.c.dtype,
                   .row_stride = args_.c.strides[args_.c.shape.ndim() - 2],
                   .batch_stride = plan_.batch_strides.c};
    if (args_.before.defined())
      work.before = {.data = before_of(call),
                     .dtype = args_.before.dtype,
                     .row_stride = args_.before.strides[args_.before.shape.ndim() - 2],
                     .batch_stride = plan_.batch_strides.before};
    work.activation = args_.activation;
    work.batch = call.batch;
    work.rows = args_.m();
    work.columns = args_.n();
    return work;
  }

  void set_bias(FinishWork& work) const {
    work.bias = args_.bias.data;
    work.bias_dtype = args_.bias.dtype;
    work.bias_stride = args_.bias.strides[0];
  }

  void run_staged(const MatmulCall& call) const {
    FinishWork work = finish_of(call);
    if (plan_.multiplies) {
      LtOperands operands = operands_of(call);
      operands.result = product_room_;
      cuda::run_product(stream_, with_batch(plan_.plain, call), operands, library_);
      const cuda::LtMatrix& product = plan_.plain.result;
      work.product = {.data = product_room_,
                      .dtype = product.dtype,
                      .row_stride = product.leading,
                      .batch_stride = product.batch_stride};
    }
    if (args_.bias.defined()) set_bias(work);
    work.alpha = args_.alpha;
    work.beta = args_.beta;
    cuda::finish_products(stream_, work);
  }

  void run_direct(const MatmulCall& call) const {
    LtOperands operands = operands_of(call);
    operands.alpha = args_.alpha;
    operands.beta = args_.beta;
    if (plan_.fuses) {
      operands.result = result_of(call);
      operands.aux = before_of(call);
      if (cuda::try_product(stream_, with_batch(plan_.fused, call), operands, library_)) return;
    }
    operands.result = args_.before.defined() ? before_of(call) : result_of(call);
    operands.aux = nullptr;
    LtProduct product = with_batch(plan_.plain, call);
    // The library may reject a product with a bias; hardly one without.
    const bool adds_bias = product.epilogue == cuda::LtEpilogue::kBias &&
                           !cuda::try_product(stream_, product, operands, library_);
    if (adds_bias) product.epilogue = cuda::LtEpilogue::kNone;
    if (product.epilogue == cuda::LtEpilogue::kNone)
      cuda::run_product(stream_, product, operands, library_);
    if (args_.activation != ActivationKind::kNone || adds_bias) finish_in_place(call, adds_bias);
  }

  // Applies the remaining steps to `before` or the result, as the library wrote it.
  void finish_in_place(const MatmulCall& call, bool adds_bias) const {
    FinishWork work = finish_of(call);
    work.product = args_.before.defined() ? work.before : work.result;
    if (adds_bias) {
      set_bias(work);
    } else {
      work.before = {};
    }
    cuda::finish_products(stream_, work);
  }

  CudaStream stream_;
  const MatmulKernel::Args& args_;
  MatmulPlan plan_;
  const void* bias_ = nullptr;
  void* bias_room_ = nullptr;
  void* product_room_ = nullptr;
  Workspace library_;
};

}  // namespace

void MatmulKernel::cuda(CudaStream stream, const Args& args, Workspace scratch) {
  const std::vector<Args> parts = cuda::matmul_parts(args);
  if (parts.empty()) Launch(stream, args, scratch).run();
  for (const Args& part : parts) Launch(stream, part, scratch).run();
}

}  // namespace tessera
