#include "tessera/tensor/tensor.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;
using Values = std::vector<std::int64_t>;

/// 0, 1, 2, ... in `shape`, as i64.
Tensor counting(const Shape& shape) {
  Values values(static_cast<std::size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from_vector(values, shape);
}

/// The plain definition of reading a strided view, index by index.
Values read_slowly(const Tensor& x) {
  const auto elements = static_cast<std::int64_t>(x.storage().bytes() / sizeof(std::int64_t));
  const Values data =
      Tensor::over(x.storage(), {elements}, {1}, 0, DType::kI64).to_vector<std::int64_t>();
  Values out;
  for (std::int64_t flat = 0; flat < x.numel(); ++flat) {
    std::int64_t rest = flat;
    std::int64_t at = x.offset();
    for (int dim = x.ndim() - 1; dim >= 0; --dim) {
      at += rest % x.dim(dim) * x.strides()[dim];
      rest /= x.dim(dim);
    }
    out.push_back(data[static_cast<std::size_t>(at)]);
  }
  return out;
}

TEST_CASE("tensor: made from values, with what it says about itself") {
  const Tensor x = Tensor::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.strides() == Shape{3, 1});
  CHECK(x.offset() == 0);
  CHECK(x.ndim() == 2);
  CHECK(x.numel() == 6);
  CHECK(x.dim(0) == 2);
  CHECK(x.dim(-1) == 3);
  CHECK(x.dtype() == DType::kF32);
  CHECK(x.device() == default_device());
  CHECK(x.is_contiguous());
  CHECK(x.storage().bytes() == 24);
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(x.version() == 0);
  CHECK(Tensor::from_vector<std::uint8_t>({}, {0, 4}).to_vector<std::uint8_t>().empty());
  CHECK(Tensor::from_vector<double>({2.5}, {}).item<double>() == 2.5);
  CHECK(thrown<InvalidArgument>([] {
          Tensor::from_vector<float>({1, 2}, {3});
        }) == "[tensor.from_vector] 2 values do not fill shape [3] of 3 elements");
  CHECK(thrown<InvalidArgument>([&] { (void)x.dim(2); }) ==
        "[tensor.dim] dim 2 does not exist in a tensor of 2 dims; give one from -2 to 1");
}

TEST_CASE("tensor: scalars in every dtype") {
  CHECK(Tensor::scalar(1.5).item<float>() == 1.5F);
  CHECK(Tensor::scalar(0.1, {.dtype = DType::kF64}).item<double>() == 0.1);
  CHECK(Tensor::scalar(-3.0, {.dtype = DType::kI64}).item<std::int64_t>() == -3);
  CHECK(Tensor::scalar(200, {.dtype = DType::kU8}).item<std::uint8_t>() == 200);
  CHECK(Tensor::scalar(7).ndim() == 0);
  // Floating dtypes are converted to each other: 2.734375 is exact in bf16, 1/3 is rounded.
  CHECK(Tensor::scalar(2.734375, {.dtype = DType::kBF16}).item<float>() == 2.734375F);
  CHECK(Tensor::scalar(-0.5, {.dtype = DType::kF16}).item<double>() == -0.5);
  CHECK(Tensor::scalar(1.0 / 3, {.dtype = DType::kF64}).item<float>() == 1.0F / 3);
  CHECK(static_cast<float>(Tensor::scalar(1.0).item<BFloat16>()) == 1.0F);
  CHECK(Tensor::scalar(7, {.dtype = DType::kI64}).item(PlanValue{1.0}) == 7.0);
}

TEST_CASE("tensor: an undefined one says so") {
  const Tensor none;
  CHECK_FALSE(none.defined());
  CHECK(thrown<StateError>([&] { (void)none.shape(); }) ==
        "[tensor] this tensor is undefined; assign one that was made by an operation");
  CHECK(thrown<StateError>([&] { none.bump_version(); }).find("undefined") != std::string::npos);
  CHECK(none.str() == "tensor (undefined)");
}

TEST_CASE("tensor: empty ones, categories and extents that cannot be") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  const MemoryCounters& counters = context->memory();
  const Tensor activation = Tensor::empty({3, 5});
  CHECK(counters.current()[MemoryCategory::kActivation] ==
        counted_bytes(default_device().type, 3 * 5 * 4));
  {
    const MemoryCategoryScope category(MemoryCategory::kGradient);
    const Tensor gradient = Tensor::empty({17}, {.dtype = DType::kF64});
    CHECK(counters.current()[MemoryCategory::kGradient] ==
          counted_bytes(default_device().type, 17 * 8));
  }
  CHECK(counters.current()[MemoryCategory::kGradient] == 0);
  const Tensor later =
      Tensor::empty_named({2, 2}, {}, MemoryCategory::kParameter, "layer.weight", false);
  CHECK(later.storage().state() == StorageState::kReleased);
  CHECK(later.storage().name() == "layer.weight");
  CHECK(counters.current()[MemoryCategory::kParameter] == 0);
  CHECK(Tensor::empty({0, 3}).numel() == 0);
  CHECK(Tensor::empty({std::int64_t{1} << 62, 0, std::int64_t{1} << 62}).storage().bytes() == 0);
  CHECK(thrown<InvalidArgument>([] {
          Tensor::empty({2, -3});
        }) == "[tensor.empty] rank 0: shape [2, -3] has a negative extent; extents start at 0");
  CHECK(thrown<InvalidArgument>([] {
          Tensor::empty({std::int64_t{1} << 40, std::int64_t{1} << 40});
        }) ==
        "[tensor.empty] rank 0: shape [1099511627776, 1099511627776] of f32 has more bytes than "
        "64 bits count; use smaller extents");
}

TEST_CASE("tensor: views over a storage are checked against its bytes") {
  const TensorStorage storage = counting({12}).storage();
  const Tensor x = Tensor::over(storage, {2, 3}, {6, 2}, 1, DType::kI64);
  CHECK(x.to_vector<std::int64_t>() == Values{1, 3, 5, 7, 9, 11});
  CHECK_FALSE(x.is_contiguous());
  CHECK(Tensor::over(storage, {0}, {1}, 12, DType::kI64).numel() == 0);
  CHECK(Tensor::over(storage, {24}, {1}, 0, DType::kF32).numel() == 24);
  CHECK(
      thrown<InvalidArgument>([&] {
        Tensor::over(storage, {2, 3}, {6, 2}, 2, DType::kI64);
      }) ==
      "[tensor.over] shape [2, 3] with strides [6, 2] at offset 2 reaches outside storage \"\" of "
      "12 i64 elements; it spans 11 from its offset");
  CHECK(thrown<InvalidArgument>([&] {
          Tensor::over(storage, {1}, {1}, -1, DType::kI64);
        }).find("at offset -1 reaches outside") != std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          Tensor::over(storage, {2}, {1, 1}, 0, DType::kI64);
        }) == "[tensor.over] shape [2] and strides [1, 1] differ in their number of dims");
  CHECK(thrown<InvalidArgument>([&] { Tensor::over(storage, {2}, {-1}, 3, DType::kI64); }) ==
        "[tensor.over] strides [-1] go backwards; they must be 0 or more");
  CHECK(thrown<InvalidArgument>(
            [&] { Tensor::over(storage, {3}, {std::int64_t{1} << 62}, 0, DType::kI64); }) ==
        "[tensor.over] strides [4611686018427387904] of shape [3] overflow 64 bits; use "
        "smaller ones");
}

TEST_CASE("view: reshapes") {
  const Tensor x = counting({2, 6});
  CHECK(x.view({3, 4}).to_vector<std::int64_t>() == x.to_vector<std::int64_t>());
  CHECK(x.view({-1}).shape() == Shape{12});
  CHECK(x.view({2, -1, 3}).shape() == Shape{2, 2, 3});
  CHECK(counting({1}).view({}).ndim() == 0);
  CHECK(counting({0, 3}).view({3, 0, 7}).shape() == Shape{3, 0, 7});
  CHECK(counting({0, 3}).view({-1, 3}).shape() == Shape{0, 3});
  CHECK(thrown<InvalidArgument>([&] {
          (void)x.view({5, 2});
        }) ==
        "[view] the 12 elements of shape [2, 6] do not fill shape [5, 2]; extents must multiply to "
        "12");
  CHECK(thrown<InvalidArgument>([&] {
          (void)x.view({5, -1});
        }).find("do not fill") != std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          (void)counting({0}).view({0, -1});
        }).find("do not fill") != std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          (void)x.view({-1, -1});
        }) == "[view] shape [-1, -1] has more than one -1; give all extents but one");
  CHECK(thrown<InvalidArgument>([&] {
          (void)x.view({-2, 6});
        }) == "[view] shape [-2, 6] has a negative extent; only -1 is legal");
  CHECK(
      thrown<InvalidArgument>([&] { (void)x.transpose(0, 1).view({12}); }) ==
      "[view] shape [6, 2] with strides [1, 6] cannot be seen as [12] without a copy; use reshape");
}

TEST_CASE("view: transpose, slice, select, expand, squeeze, unsqueeze") {
  const Tensor x = counting({2, 3, 4});
  CHECK(x.transpose(0, 2).shape() == Shape{4, 3, 2});
  CHECK(x.transpose(-1, 0).strides() == Shape{1, 4, 12});
  CHECK(x.slice(1, 1, 3).shape() == Shape{2, 2, 4});
  CHECK(x.slice(-1, 4, 4).shape() == Shape{2, 3, 0});
  CHECK(x.select(1, 2).to_vector<std::int64_t>() == Values{8, 9, 10, 11, 20, 21, 22, 23});
  CHECK(x.select(0, 1).select(0, 2).select(0, 3).item<std::int64_t>() == 23);
  CHECK(x.slice(0, 1, 2).squeeze(0).shape() == Shape{3, 4});
  CHECK(x.unsqueeze(0).shape() == Shape{1, 2, 3, 4});
  CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 4, 1});
  CHECK(x.unsqueeze(1).is_contiguous());
  const Tensor row = counting({3}).expand({2, 3});
  CHECK(row.strides() == Shape{0, 1});
  CHECK(row.to_vector<std::int64_t>() == Values{0, 1, 2, 0, 1, 2});
  CHECK(counting({2, 1}).expand({3, 2, 4}).to_vector<std::int64_t>() ==
        read_slowly(counting({2, 1}).expand({3, 2, 4})));
  CHECK(counting({1}).expand({0}).numel() == 0);
  CHECK(counting({}).expand({2, 2}).to_vector<std::int64_t>() == Values{0, 0, 0, 0});
}

TEST_CASE("view: chains of views read what their strides say") {
  const Tensor x = counting({3, 5, 7});
  const std::vector<Tensor> views = {
      x.transpose(0, 2),
      x.transpose(1, 2).slice(1, 2, 6),
      x.slice(2, 1, 6).slice(2, 2, 4),
      x.slice(0, 1, 3).transpose(0, 1).slice(0, 0, 4),
      x.select(1, 3).transpose(0, 1).unsqueeze(1),
      x.slice(1, 0, 1).expand({3, 4, 7}),
      x.slice(1, 5, 5),
      x.slice(1, 2, 2).select(0, 2),
  };
  for (const Tensor& view : views) CHECK(view.to_vector<std::int64_t>() == read_slowly(view));
}

TEST_CASE("view: strides that another shape can walk") {
  const Tensor x = counting({4, 3, 2});
  const auto check = [&](const Tensor& from, const Shape& shape) {
    const Tensor y = from.view(shape);
    CHECK(y.storage() == x.storage());
    CHECK(y.to_vector<std::int64_t>() == read_slowly(from));
  };
  check(x.slice(0, 0, 4, 2), {2, 6});
  check(x.slice(0, 0, 4, 2), {2, 3, 1, 2});
  check(x.slice(0, 0, 4, 2), {1, 2, 6, 1});
  check(x.slice(2, 0, 1), {12});
  check(x.slice(2, 1, 2), {2, 2, 3});
  check(x.slice(1, 0, 2), {2, 2, 4});
  check(x.transpose(0, 1), {3, 2, 2, 2});
  check(x.slice(1, 1, 1), {0, 7});
  CHECK_FALSE(x.slice(1, 0, 2).try_view({16}).has_value());
  CHECK_FALSE(x.transpose(0, 1).try_view({12, 2}).has_value());
  CHECK_FALSE(x.slice(0, 0, 4, 2).try_view({12}).has_value());
  check(x.select(0, 1).expand({5, 3, 2}), {5, 6});
}

TEST_CASE("view: slice with a step, permute, movedim, narrow, unflatten, negative indices") {
  const Tensor x = counting({5, 3, 4});
  const std::vector<Tensor> views = {
      x.slice(0, 0, 5, 2),
      x.slice(0, 1, 5, 3),
      x.slice(2, -3, -1),
      x.slice(2, 1, 1, 2),
      x.permute({2, 0, 1}),
      x.permute({-1, 1, 0}),
      x.movedim(0, 2),
      x.movedim(-1, 0),
      x.narrow(1, 1, 2),
      x.unflatten(2, {2, -1}),
      x.select(1, -1),
      x.select(0, 4).squeeze(),
      x.slice(1, 2, 3).squeeze(),
      x.slice(1, 2, 3).expand({-1, 6, -1}),
  };
  for (const Tensor& view : views) {
    CHECK(view.storage() == x.storage());
    CHECK(view.to_vector<std::int64_t>() == read_slowly(view));
  }
  CHECK(views[0].shape() == Shape{3, 3, 4});
  CHECK(views[1].shape() == Shape{2, 3, 4});
  CHECK(views[1].to_vector<std::int64_t>().front() == 12);
  CHECK(views[2].shape() == Shape{5, 3, 2});
  CHECK(views[2].to_vector<std::int64_t>().front() == 1);
  CHECK(views[4].shape() == Shape{4, 5, 3});
  CHECK(views[6].shape() == Shape{3, 4, 5});
  CHECK(views[7].shape() == Shape{4, 5, 3});
  CHECK(views[9].shape() == Shape{5, 3, 2, 2});
  CHECK(views[10].to_vector<std::int64_t>().front() == 8);
  CHECK(views[12].shape() == Shape{5, 4});
  const auto text = [](auto&& body) { return thrown<InvalidArgument>(body); };
  CHECK(text([&] { (void)x.slice(0, 0, 5, 0); }) == "[slice] the step is 0; it must be at least 1");
  CHECK(text([&] {
          (void)x.permute({0, 1});
        }) == "[permute] 2 dims given for shape [5, 3, 4]; name each of its 3 dims once");
  CHECK(text([&] {
          (void)x.permute({0, 1, 1});
        }) == "[permute] dim 1 is listed twice; name each dim once");
  CHECK(text([&] { (void)x.narrow(0, -1, 2); }) ==
        "[narrow] start -1 and length 2 must not be negative");
  CHECK(
      text([&] {
        (void)x.unflatten(2, {3, -1});
      }) ==
      "[unflatten] the 4 elements of shape [4] do not fill shape [3, -1]; extents must multiply to "
      "4");
  CHECK(text([&] { (void)x.movedim(3, 0); }) ==
        "[movedim] dim 3 does not exist in a tensor of 3 dims; give one from -3 to 2");
}

TEST_CASE("view: dims and ranges that do not exist") {
  const Tensor x = counting({2, 3});
  const auto text = [](auto&& body) { return thrown<InvalidArgument>(body); };
  CHECK(text([&] { (void)x.transpose(0, 2); }) ==
        "[transpose] dim 2 does not exist in a tensor of 2 dims; give one from -2 to 1");
  CHECK(text([&] { (void)x.slice(1, 2, 4); }) ==
        "[slice] range [2, 4) is not inside dim 1 of shape [2, 3]; give 0 <= start <= end <= 3, "
        "or count from the back with negative numbers");
  CHECK(text([&] { (void)x.slice(1, 2, 1); }).find("range [2, 1)") != std::string::npos);
  CHECK(text([&] { (void)x.slice(1, -1, 1); }).find("range [-1, 1)") != std::string::npos);
  CHECK(text([&] { (void)x.select(0, 2); }) ==
        "[select] index 2 is not inside dim 0 of shape [2, 3]; give -2 <= index < 2");
  CHECK(text([&] { (void)x.expand({3}); }) ==
        "[expand] shape [3] has fewer dims than [2, 3]; expand cannot remove dims");
  CHECK(
      text([&] {
        (void)x.expand({4, 3});
      }) ==
      "[expand] shape [2, 3] does not expand to [4, 3]: dim 0 is 2, and only extents of 1 repeat");
  CHECK(text([&] {
          (void)counting({1}).expand({-1, 1});
        }).find("does not expand") != std::string::npos);
  CHECK(text([&] { (void)x.squeeze(2); }) ==
        "[squeeze] dim 2 does not exist in a tensor of 2 dims; give one from -2 to 1");
  CHECK(text([&] { (void)x.unsqueeze(4); }).find("dim 4 does not exist") != std::string::npos);
}

TEST_CASE("version: shared by a view family, not by a storage") {
  const Tensor x = counting({2, 3});
  const Tensor row = x.select(0, 1);
  const Tensor deep = row.slice(0, 1, 2);
  deep.bump_version();
  CHECK(x.version() == 1);
  CHECK(row.version() == 1);
  x.bump_version();
  CHECK(deep.version() == 2);
  const Tensor other = x.detached_version();
  CHECK(other.version() == 0);
  other.bump_version();
  CHECK(x.version() == 2);
  CHECK(other.storage() == x.storage());
  const Tensor neighbour = Tensor::over(x.storage(), {3}, {1}, 3, DType::kI64);
  neighbour.bump_version();
  CHECK(x.version() == 2);
  const Tensor same = x;
  same.bump_version();
  CHECK(x.version() == 3);
}

TEST_CASE("version: a family remembers its last writer, and counts its handles") {
  const Tensor x = counting({2, 3});
  const Tensor row = x.select(0, 1);
  CHECK(x.last_writer() == nullptr);
  row.bump_version("first");
  CHECK(std::string(x.last_writer()) == "first");
  x.set_last_writer("second");
  CHECK(row.version() == 1);
  CHECK(std::string(row.last_writer()) == "second");
  CHECK(x.detached_version().last_writer() == nullptr);
  row.bump_version();
  CHECK(x.last_writer() == nullptr);
  row.add_family_handles(2);
  CHECK(x.family_handles() == 2);
  CHECK(x.detached_version().family_handles() == 0);
  x.add_family_handles(-2);
  CHECK(row.family_handles() == 0);
}

TEST_CASE("tensor: who else can reach its elements") {
  Tensor x = Tensor::empty({4, 6});
  CHECK(x.is_sole_owner());
  const auto alone_beside = [&](auto other) {
    (void)other;  // lives until the result is known
    return x.is_sole_owner();
  };
  CHECK_FALSE(alone_beside(x));
  CHECK_FALSE(alone_beside(x.view({24})));
  CHECK_FALSE(alone_beside(x.detached_version()));
  CHECK_FALSE(alone_beside(x.storage()));
  CHECK(x.is_sole_owner());
  const Tensor rows = x.slice(0, 0, 2);
  CHECK_FALSE(rows.is_sole_owner());
  x = Tensor();  // a view whose base is destroyed
  CHECK(rows.is_sole_owner());
  const Tensor column = rows.select(1, 0);
  CHECK_FALSE(rows.is_sole_owner());
}

TEST_CASE("tensor: reading it from the host") {
  const Tensor x = counting({2, 3});
  CHECK(thrown<InvalidArgument>([&] { x.to_vector<float>(); }) ==
        "[tensor.to_vector] the tensor's elements are i64, not f32; ask for their type or cast the "
        "tensor first");
  CHECK(thrown<InvalidArgument>([&] { x.item<std::int64_t>(); }) ==
        "[tensor.item] shape [2, 3] has 6 elements, not 1; use to_vector() or reduce it first");
  CHECK(thrown<InvalidArgument>([&] { x.select(0, 0).select(0, 0).item<float>(); }) ==
        "[tensor.item] the tensor's elements are i64, not f32; ask for their type or cast the "
        "tensor first");
  CHECK(thrown<InvalidArgument>([] { Tensor::scalar(1.0).item<std::int64_t>(); }) ==
        "[tensor.item] the tensor's elements are f32, not i64; ask for their type or cast the "
        "tensor first");
  CHECK(thrown<InvalidArgument>([] {
          Tensor::from_vector<float>({1, 2}, {2}).item<double>();
        }) == "[tensor.item] shape [2] has 2 elements, not 1; use to_vector() or reduce it first");
  CHECK(thrown<InvalidArgument>([&] { x.item(PlanValue{1}); }) ==
        "[tensor.item] shape [2, 3] has 6 elements, not 1; use to_vector() or reduce it first");
}

TEST_CASE("tensor: host copies stand in the trace") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  ExecutionTrace trace;
  context->set_trace(&trace);
  const Tensor x = Tensor::from_vector<float>({1, 2, 3, 4}, {4});
  x.slice(0, 1, 3).to_vector<float>();
  context->set_trace(nullptr);
  const auto kernels = trace.all<KernelRecord>();
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].name == "copy_from_host");
  CHECK(kernels[0].stream == current_stream(default_device()).id());
  REQUIRE(kernels[0].writes.size() == 1);
  CHECK(kernels[0].writes[0].storage == x.storage().id());
  CHECK(kernels[1].name == "copy_to_host");
  CHECK(kernels[1].stream == 0);
  REQUIRE(kernels[1].reads.size() == 1);
  CHECK(kernels[1].reads[0].offset == 1);
  CHECK(kernels[1].reads[0].shape == Shape{2});
  CHECK(trace.all<EventRecord>().size() == 1);
}

TEST_CASE("tensor: on the null device there are shapes and bytes counted, but no values") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  const Tensor huge = Tensor::empty({1 << 20, 1 << 20}, {.device = kNull});
  CHECK(huge.numel() == std::int64_t{1} << 40);
  CHECK(context->memory().current().total() == std::int64_t{1} << 42);
  CHECK(huge.transpose(0, 1).slice(0, 3, 5).shape() == Shape{2, 1 << 20});
  CHECK(thrown<StateError>([&] { huge.to_vector<float>(); }) ==
        "[tensor.to_vector] rank 0: a tensor of shape [1048576, 1048576] on the null device has no "
        "values; say what a plan should assume with item(PlanValue{...})");
  const Tensor loss = Tensor::from_vector<float>({3.0F}, {}, kNull);
  CHECK(thrown<StateError>([&] { loss.item<float>(); }).find("[tensor.item]") == 0);
  CHECK(loss.item(PlanValue{2.5}) == 2.5);
  CHECK(loss.str() == "tensor f32 [] on null");
}

}  // namespace
}  // namespace tessera
