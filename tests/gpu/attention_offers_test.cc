// Attention by every plan that cuDNN offers, each executed directly, against the operation.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor/determinism.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_attention_offers.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_kernels.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/output.h"

namespace tessera {
namespace {

using cuda::AttentionOffer;
using cuda::CudnnAttentionPlan;
using testing::all_close;

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr testing::Tolerance kTolerance{.rtol = 4e-2, .atol = 4e-2};
constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kLength = 32, kDim = 16;

// [batch, heads, length, dim], with the layout that a projection gives.
Tensor operand(std::int64_t heads, std::string_view name) {
  const Shape shape = {kBatch, kLength, heads, kDim};
  const Tensor out = Tensor::empty(shape, {.dtype = DType::kBF16, .device = kGpu});
  random::fill_normal(out, random::named_key(1, name), random::whole(shape), 0, 1);
  return out.transpose(1, 2);
}

Tensor on_cpu(const Tensor& x) { return to_device(x, kCpu); }

bool close(const Tensor& actual, const Tensor& expected) {
  return all_close(on_cpu(actual), on_cpu(expected), kTolerance).ok;
}

// Causal attention with grouped heads, by the operation.
struct Attention {
  AttentionInputs in{
      .q = operand(kHeads, "q"), .k = operand(kKvHeads, "k"), .v = operand(kKvHeads, "v")};
  Tensor dout = operand(kHeads, "dout");
  AttentionOptions options{.causal = true};
  AttentionResult result = scaled_dot_product_attention(in.q, in.k, in.v, options);
  AttentionRule rule;

  Attention() {
    rule.causal = true;
    rule.scale = 1 / std::sqrt(static_cast<double>(kDim));
  }
  AttentionKernel::Args args(const AttentionResult& to) const {
    return {.q = read(in.q),
            .k = read(in.k),
            .v = read(in.v),
            .out = write(to.output),
            .log_sum_exp = write(to.log_sum_exp),
            .rule = rule};
  }
  AttentionBackwardKernel::Args args(const AttentionInputs& to) const {
    return {.dout = read(dout),
            .q = read(in.q),
            .k = read(in.k),
            .v = read(in.v),
            .out = read(result.output),
            .log_sum_exp = read(result.log_sum_exp),
            .dq = write(to.q),
            .dk = write(to.k),
            .dv = write(to.v),
            .rule = rule};
  }
};

CudaStream stream() { return current_stream(kGpu).cuda_handle(); }

// An offer with scratch of its own.
struct Bound {
  Tensor scratch;
  std::function<void()> compute;

  explicit Bound(const AttentionOffer& offer)
      : scratch(Tensor::empty({static_cast<std::int64_t>(offer.bytes) + 1},
                              {.dtype = DType::kU8, .device = kGpu})),
        compute(offer.bind({.data = write(scratch).data, .bytes = offer.bytes})) {}
};

// Returns false if the plan refuses to execute, which our chosen plan must not.
bool computed(const AttentionOffer& offer, const std::optional<CudnnAttentionPlan>& ours) {
  try {
    Bound(offer).compute();
    current_stream(kGpu).synchronize();
    return true;
  } catch (const DeviceError& error) {
    WARN(offer.plan << ": " << error.what());
    CHECK_FALSE((ours && ours->name == offer.plan));
    return false;
  }
}

// The offers, after a check of their names; empty in a build without cuDNN.
template <class Args>
std::vector<AttentionOffer> checked_offers(const Args& args) {
  const std::vector<AttentionOffer> offers = cuda::attention_offers(stream(), args);
  const auto chosen = cuda::cudnn_attention_plan(args);
  CHECK(chosen.has_value() == (cuda::cudnn_facts().version > 0));
  CHECK(offers.empty() == !chosen);
  std::set<std::string> names;
  for (const AttentionOffer& offer : offers) names.insert(offer.plan);
  CHECK(names.size() == offers.size());
  if (chosen && chosen->executions == 1) CHECK(names.contains(chosen->name));
  return offers;
}

}  // namespace

TEST_CASE("every plan that cuDNN offers computes attention") {
  const Attention a;
  const AttentionResult to{.output = full_like(a.result.output, 0),
                           .log_sum_exp = full_like(a.result.log_sum_exp, 0)};
  const auto ours = cuda::cudnn_attention_plan(a.args(to));
  for (const AttentionOffer& offer : checked_offers(a.args(to))) {
    INFO(offer.plan);
    for (const Tensor& x : {to.output, to.log_sum_exp}) fill_(x, -7);
    if (!computed(offer, ours)) continue;
    CHECK(close(to.output, a.result.output));
    CHECK(close(to.log_sum_exp, a.result.log_sum_exp));
  }
}

TEST_CASE("every plan that cuDNN offers computes the derivative of attention, in one piece") {
  const auto slice_bytes = GENERATE(std::int64_t{1} << 29, std::int64_t{1});
  const Attention a;
  const AttentionInputs expected =
      scaled_dot_product_attention_backward(a.dout, a.in, a.result, a.options);
  const AttentionInputs to{
      .q = full_like(a.in.q, 0), .k = full_like(a.in.k, 0), .v = full_like(a.in.v, 0)};
  const std::int64_t before = cuda::set_attention_slice_bytes(slice_bytes);
  const std::vector<AttentionOffer> offers = checked_offers(a.args(to));
  const auto ours = cuda::cudnn_attention_plan(a.args(to));
  cuda::set_attention_slice_bytes(before);
  if (ours) CHECK(ours->executions == (slice_bytes == 1 ? kBatch * kKvHeads : 1));
  CHECK(std::any_of(offers.begin(), offers.end(), [](const AttentionOffer& offer) {
    return offer.plan.ends_with("dq summed in any order");
  }));
  for (const AttentionOffer& offer : offers) {
    INFO(offer.plan);
    for (const Tensor& gradient : {to.q, to.k, to.v}) fill_(gradient, -7);
    if (!computed(offer, ours)) continue;
    CHECK(close(to.q, expected.q));
    CHECK(close(to.k, expected.k));
    CHECK(close(to.v, expected.v));
  }
}

TEST_CASE("an offer that is bound once reads its operands each time") {
  const Attention a;
  const std::vector<AttentionOffer> offers = checked_offers(a.args(a.result));
  if (offers.empty()) return;
  const Bound bound(offers.back());
  const Tensor halves = full_like(a.result.output, 0.5);
  bound.compute();
  CHECK_FALSE(close(a.result.output, halves));
  fill_(a.in.v, 0.5);
  bound.compute();
  CHECK(close(a.result.output, halves));
}

TEST_CASE("deterministic mode takes the graph with a fixed order of sums") {
  const Attention a;
  if (!cuda::cudnn_attention_plan(a.args(a.result))) return;  // a build without cuDNN
  const auto scratch = [&](bool on) {
    set_deterministic(on);
    MemoryCounters& memory = current_rank_context()->memory();
    memory.reset_peak();
    scaled_dot_product_attention_backward(a.dout, a.in, a.result, a.options);
    set_deterministic(false);
    return memory.peak()[MemoryCategory::kWorkspace];
  };
  const AttentionInputs to{
      .q = full_like(a.in.q, 0), .k = full_like(a.in.k, 0), .v = full_like(a.in.v, 0)};
  AttentionBackwardKernel::Args args = a.args(to);
  for (const bool fixed_order : {true, false}) {
    args.fixed_order = fixed_order;
    const auto bytes = static_cast<std::int64_t>(*cuda::cudnn_attention_bytes(args));
    CHECK(scratch(fixed_order) >= bytes);
    CHECK(scratch(fixed_order) < bytes + 1024);  // rounded up to a block
  }
  CHECK(scratch(true) != scratch(false));
}

TEST_CASE("attention in 16 bits without tensor cores is reported, once for each reason") {
  const auto attend = [](std::int64_t length, DType dtype) {
    const Tensor x = zeros({1, 2, length, 8}, {.dtype = dtype, .device = kGpu});
    AttentionOptions options;
    options.mask = ones({length, length}, {.dtype = DType::kBool, .device = kGpu});
    scaled_dot_product_attention(x, x, x, options);
    current_stream(kGpu).synchronize();
  };
  CHECK(testing::output_of([&] { attend(127, DType::kBF16); }).empty());  // too small to matter
  CHECK(testing::output_of([&] { attend(128, DType::kF32); }).empty());   // has no tensor cores
  const std::string text = testing::output_of([&] { attend(128, DType::kBF16); });
  CHECK(text.find("warning: attention in bf16 does not use tensor cores") == 0);
  CHECK(text.find(cuda::cudnn_facts().version > 0 ? "no mask" : "without cuDNN") !=
        std::string::npos);
  CHECK(testing::output_of([&] { attend(200, DType::kBF16); }).empty());
}

}  // namespace tessera
