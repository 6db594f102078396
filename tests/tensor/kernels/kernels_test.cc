// The choice of an instruction set, settling of layouts, and every operation on the null device.
#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/tensor/ops_support.h"
#include "tessera/tests/tensor/throws.h"

namespace tessera {
namespace {

using namespace testing;

constexpr CpuFlags kHaswell = {.avx2 = true,
                               .fma = true,
                               .bmi1 = true,
                               .bmi2 = true,
                               .f16c = true,
                               .lzcnt = true,
                               .movbe = true};

CpuFlags with_avx512(CpuFlags flags) {
  flags.avx512f = flags.avx512bw = flags.avx512cd = flags.avx512dq = flags.avx512vl = true;
  return flags;
}

TEST_CASE("choose_cpu_isa: by flags alone, naming what is missing") {
  CHECK(choose_cpu_isa(kHaswell) == CpuIsa::kX86V3);
  CHECK(choose_cpu_isa(with_avx512(kHaswell)) == CpuIsa::kX86V4);
  CHECK(std::string(cpu_isa_name(CpuIsa::kX86V3)) == "x86-64-v3");
  CHECK(std::string(cpu_isa_name(CpuIsa::kX86V4)) == "x86-64-v4");
  // All five parts of AVX-512 are needed; the first CPUs with it had two.
  for (bool CpuFlags::*flag : {&CpuFlags::avx512f, &CpuFlags::avx512bw, &CpuFlags::avx512cd,
                               &CpuFlags::avx512dq, &CpuFlags::avx512vl}) {
    CpuFlags flags = with_avx512(kHaswell);
    flags.*flag = false;
    CHECK(choose_cpu_isa(flags) == CpuIsa::kX86V3);
  }
  CpuFlags flags = kHaswell;
  flags.fma = flags.movbe = false;
  CHECK(thrown<DeviceError>([&] { choose_cpu_isa(flags); }) ==
        "[cpu_table] this CPU lacks fma, movbe; the kernels need x86-64-v3, which x86 CPUs since "
        "2013-2015 have");
  CHECK(thrown<DeviceError>([&] { choose_cpu_isa(with_avx512({})); }) ==
        "[cpu_table] this CPU lacks avx2, fma, bmi1, bmi2, f16c, lzcnt, movbe; the kernels need "
        "x86-64-v3, which x86 "
        "CPUs since 2013-2015 have");
}

TEST_CASE("choose_cpu_isa: what TESSERA_CPU_ISA asks for") {
  const CpuFlags wide = with_avx512(kHaswell);
  CHECK(choose_cpu_isa(wide, "v3") == CpuIsa::kX86V3);
  CHECK(choose_cpu_isa(wide, "v4") == CpuIsa::kX86V4);
  CHECK(choose_cpu_isa(kHaswell, "v3") == CpuIsa::kX86V3);
  CHECK(thrown<DeviceError>([&] { choose_cpu_isa(wide, "avx2"); }) ==
        "[cpu_table] TESSERA_CPU_ISA is \"avx2\"; say v3 or v4, or unset it");
  CpuFlags flags = wide;
  flags.avx512bw = flags.avx512vl = false;
  CHECK(thrown<DeviceError>([&] { choose_cpu_isa(flags, "v4"); }) ==
        "[cpu_table] TESSERA_CPU_ISA is \"v4\", but this CPU lacks avx512bw, avx512vl; say v3, or "
        "unset it");
  CHECK(thrown<DeviceError>([&] {
          choose_cpu_isa({}, "v3");
        }).starts_with("[cpu_table] this CPU lacks avx2"));
  CHECK(cpu_isa() == choose_cpu_isa(detect_cpu_flags(), requested_cpu_isa()));
}

TEST_CASE("cpu_table: every kernel has an entry point") {
  CHECK(std::apply([](const auto&... entry) { return ((entry.run != nullptr) && ...); },
                   cpu_table()));
}

TEST_CASE("merge_dims: extents of 1 go, neighbours merge, order stays") {
  Shape shape{2, 1, 3, 4}, a{12, 99, 4, 1}, b{12, 0, 4, 1};
  merge_dims(shape, {&a, &b});
  CHECK(shape == Shape{24});
  CHECK(a == Shape{1});
  Shape broadcast{2, 3, 4}, x{12, 4, 1}, y{0, 4, 1};
  merge_dims(broadcast, {&x, &y});
  CHECK(broadcast == Shape{2, 12});
  CHECK(x == Shape{12, 1});
  CHECK(y == Shape{0, 1});
  Shape none{1, 1}, none_strides{5, 5};
  merge_dims(none, {&none_strides});
  CHECK(none == Shape{});
  Shape empty{3, 0}, empty_strides{0, 1};
  merge_dims(empty, {&empty_strides});
  CHECK(empty.numel() == 0);
}

TEST_CASE("sort_and_merge_dims: the first operand is walked as it lies in memory") {
  Shape shape{3, 4}, out{1, 3}, in{1, 3};
  sort_and_merge_dims(shape, {&out, &in});
  CHECK(shape == Shape{12});
  CHECK(out == Shape{1});
  Shape mixed{3, 4}, first{1, 3}, second{4, 1};
  sort_and_merge_dims(mixed, {&first, &second});
  CHECK(mixed == Shape{4, 3});
  CHECK(first == Shape{3, 1});
  CHECK(second == Shape{1, 4});
}

// One call of every reduction, and of what depends on order.
void call_reductions(const Tensor& x) {
  sum(x, {0});
  mean(x);
  sum_of_squares(x);
  sum_to_shape(x, {1, 5});
  using Reduction = Tensor (*)(const Tensor&, const Dims&, bool);
  for (Reduction op : std::initializer_list<Reduction>{prod, amax, amin, any, all, logsumexp})
    op(x, {0}, false);
  var(x, {1});
  stddev(x, {1});
  norm(x);
  var_mean(x);
  cumsum(x, 0, {.reverse = true});
  argmax(x);
  argmin(x, 0);
  max(x, 1);
  min(x, 0);
  sort(x, 0);
  argsort(x);
  topk(x, 2);
}

// One call of every operation that moves elements.
void call_moves(const Tensor& x) {
  const Tensor index = arange(5, {.dtype = DType::kI64, .device = x.device()});
  const Tensor rows = index.unsqueeze(0),
               mask = zeros({5}, {.dtype = DType::kBool, .device = x.device()});
  stack(split(cat({x, x}), 6));
  unbind(chunk(x, 2)[0]);
  pad(roll(x, 1, 0), {{1, 2}});
  repeat_interleave(tile(repeat(flip(x, {0}), {1, 2}), {2}), 2, 0);
  tril(x);
  triu(x);
  take_along_dim(gather(x, 1, rows), rows, 1);
  scatter_(scatter(x, 1, rows, x), 1, rows, x);
  scatter_add_(scatter_add(x, 1, rows, x), 1, rows, x);
  index_select(x, 0, index);
  tessera::index(x, {index, index});
  index_put(x, {index}, x.select(0, 0), {.accumulate = true});
  masked_fill_(masked_fill(x, mask, 1), mask, 2);
  one_hot(index, 5);
  embedding_backward_into(x, embedding(x, index), index);
}

void call_norms(Device device) {
  const TensorOptions half{.dtype = DType::kBF16, .device = device};
  const Tensor x = zeros({4, 6, 3}, half), mean = zeros({6}, half), var = ones({6}, half);
  const NormResult layer = layer_norm_forward(x, ones({3}, half), zeros({3}, half));
  row_norm_backward(x, x, ones({3}, half), layer.statistics);
  rms_norm(x, ones({3}, half));
  group_norm(x, ones({6}, half), Tensor(), {.groups = 2});
  const BatchNormResult batch =
      batch_norm_forward(x, Tensor(), Tensor(), {.running_mean = mean, .running_var = var});
  BatchNormSums sums = batch_norm_sums(x, x, batch.statistics);
  sums.count = batch.count;
  batch_norm_input_gradient(x, x, Tensor(), batch.statistics, sums);
  batch_norm(x, Tensor(), Tensor(), {.running_mean = mean, .running_var = var, .training = false});
}

void call_products(Device device) {
  const TensorOptions f32{.device = device};
  const Tensor x = full({6, 5}, 0.5, f32), row = ones({5}, f32);
  matmul_into(zeros({6, 6}, f32), x, x.transpose(0, 1), {.beta = 1});
  matmul(x.transpose(0, 1), x);
  linear(x, zeros({3, 5}, f32), zeros({3}, f32));
  linear_and_before(x, zeros({3, 5}, f32), zeros({3}, f32), Activation::kGelu);
  bmm(zeros({2, 3, 4}, f32), zeros({2, 4, 5}, f32));
  matmul(zeros({2, 1, 3, 4}, f32), zeros({5, 4, 3}, f32).transpose(1, 2).transpose(1, 2));
  addmm(row.slice(0, 0, 3), x, zeros({5, 3}, f32));
  mv(x, row);
  dot(row, row);
  outer(row, row);
  for (DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    const Tensor y = cast(x, dtype);
    matmul(y, y.transpose(0, 1));
    matmul_into(zeros({6, 6}, f32), y, y.transpose(0, 1), {.beta = 1});
  }
}

// One call of every operation.
void call_everything(Device device) {
  const TensorOptions f32{.device = device}, i64{.dtype = DType::kI64, .device = device},
      half{.dtype = DType::kBF16, .device = device};
  const Tensor x = full({6, 5}, 0.5, f32), row = ones({5}, f32), targets = arange(6, i64);
  zeros_like(ones({2}, f32));
  for (auto op : {add, sub, mul, div, eq}) op(x, row);
  for (auto op : {neg, tessera::abs, tessera::exp, tessera::log, tessera::sqrt, square,
                  tessera::tanh, relu, gelu})
    op(x);
  relu_backward(x, x);
  gelu_backward(x, x);
  add(x, 1.0);
  mul(x, 2.0);
  cast(clone(x), DType::kF64);
  contiguous(x.transpose(0, 1));
  axpby_(x, x, {.beta = 1});
  copy_(x, x);
  call_reductions(x);
  call_moves(x);
  call_products(device);
  softmax_backward(softmax(x), x);
  log_softmax_backward(log_softmax(x, 0), x, 0);
  const Tensor logits = zeros({6, 7}, f32);
  cross_entropy(logits, targets, {.label_smoothing = 0.1, .weight = ones({7}, f32)});
  const auto ce = cross_entropy_rows(logits, targets);
  cross_entropy_rows_backward(ce.loss, logits, targets, ce.log_sum_exp);
  const Tensor q = zeros({2, 4, 5, 8}, f32), k = zeros({2, 2, 7, 8}, f32);
  const AttentionOptions rule{.causal = true, .mask = zeros({5, 7}, f32), .dropout_p = 0.1};
  const AttentionResult attention = scaled_dot_product_attention(q, k, k, rule);
  scaled_dot_product_attention_backward(q, {q, k, k}, attention, rule);
  const Tensor image = zeros({2, 4, 6, 6}, f32), filter = zeros({6, 2, 3, 3}, f32);
  const Tensor mapped = conv2d(image, filter, zeros({6}, f32), {.groups = 2});
  conv_backward_input(mapped, filter, image.shape(), {.groups = 2});
  conv_backward_weight(mapped, image, filter.shape(), {.groups = 2});
  conv1d(image.select(2, 0), filter.select(2, 0), {}, {.groups = 2});
  const MaxPoolResult pooled = max_pool2d(image, {.kernel = 2});
  max_pool_backward(pooled.output, pooled.indices, image.shape(), {.kernel = 2});
  avg_pool_backward(avg_pool2d(image, {.kernel = 2}), image.shape(), {.kernel = 2});
  adaptive_avg_pool_backward(adaptive_avg_pool2d(image, 4), image.shape());
  adaptive_max_pool2d(image, 4);
  max_pool1d(image.select(2, 0), {.kernel = 2});
  avg_pool1d(image.select(2, 0), {.kernel = 2});
  sgd_step({{.parameter = x,
             .gradient = clone(x),
             .momentum = zeros_like(x),
             .lr = 0.1,
             .momentum_factor = 0.9}});
  call_norms(device);
  dropout(x, 0.5, {}, random::whole({6, 5}));
  rotary(zeros({2, 3, 1, 4}, half), rotary_table(3, 4, {.device = device}));
  const Tensor p = zeros({7}, half);
  adam_step(
      {{.parameter = p, .gradient = p, .exp_avg = zeros({7}, f32), .exp_avg_sq = zeros({7}, f32)}});
  random::fill_uniform(x, {}, random::whole({6, 5}), 0, 1);
  random::fill_normal(x, {}, random::whole({6, 5}), 0, 1);
}

struct Plan {
  std::vector<std::string> kernels;
  std::int64_t peak;
  std::int64_t workspace;
  bool operator==(const Plan&) const = default;
};

Plan plan_of(Device device) {
  return with_threads(2, [device] {
    Trace trace;
    current_rank_context()->set_trace(&trace);
    call_everything(device);
    current_rank_context()->set_trace(nullptr);
    const MemoryCounters& memory = current_rank_context()->memory();
    Plan plan{.kernels = {},
              .peak = memory.peak_total(),
              .workspace = memory.peak()[MemoryCategory::kWorkspace]};
    for (const KernelRecord& record : trace.all<KernelRecord>())
      plan.kernels.push_back(record.name);
    return plan;
  });
}

TEST_CASE("the null device runs every operation, with the kernels and bytes of the CPU") {
  const Plan cpu = plan_of(kCpu), null = plan_of(kNull);
  CHECK(cpu.kernels == null.kernels);
  CHECK(cpu.peak == null.peak);
  CHECK(cpu.workspace == null.workspace);
  CHECK(cpu.kernels.size() > 40);
}

TEST_CASE("a traced launch lists what it reads and writes") {
  with_threads(1, [] {
    const Tensor a = ones({2, 3}), b = ones({3});
    Trace trace;
    current_rank_context()->set_trace(&trace);
    const Tensor y = add(a, b);
    current_rank_context()->set_trace(nullptr);
    const auto records = trace.all<KernelRecord>();
    REQUIRE(records.size() == 1);
    CHECK(records[0].name == "binary");
    REQUIRE(records[0].reads.size() == 2);
    REQUIRE(records[0].writes.size() == 1);
    CHECK(records[0].reads[0].storage == a.storage().id());
    CHECK(records[0].reads[1].strides == Shape{0, 1});
    CHECK(records[0].writes[0].storage == y.storage().id());
    return 0;
  });
}

TEST_CASE("operations on released storage say so") {
  const Tensor x = Tensor::empty_named({3}, {}, MemoryCategory::kGathered, "group.0", false);
  const std::string message = thrown<StateError>([&] { relu(x); });
  INFO(message);
  CHECK(message.find("group.0") != std::string::npos);
}

}  // namespace
}  // namespace tessera
