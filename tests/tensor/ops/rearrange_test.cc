// Padding by modes, turns, rolls, repetitions by counts, and views with other names: values of
// PyTorch, and index arithmetic for every dtype and layout.
#include <algorithm>

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/ops/view.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;
using naive::Index;
using Numbers = std::vector<double>;

Tensor counting(const Shape& shape) { return arange(shape.numel()).view(shape); }
Tensor counts(const std::vector<std::int64_t>& values) {
  return Tensor::from_vector(values, {static_cast<std::int64_t>(values.size())});
}
Numbers values(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

// Where the element at `place`, which may be outside [0, n), comes from.
std::int64_t source_of(std::int64_t place, std::int64_t n, const Padding& p, PadMode mode) {
  if (mode == PadMode::kReplicate) return std::clamp<std::int64_t>(place, 0, n - 1);
  if (mode == PadMode::kCircular) {
    const std::int64_t low = std::max<std::int64_t>(0, -p.before),
                       left = n - low - std::max<std::int64_t>(0, -p.after);
    return low + (place - low + left) % left;
  }
  if (place < 0) return -place;
  return place >= n ? 2 * (n - 1) - place : place;
}

TEST_CASE("pad by reflection, replication and wrapping around") {
  const std::vector<std::vector<Padding>> paddings = {
      {{2, 1}}, {{0, 0}}, {{0, 3}}, {{1, 2}, {3, 0}}, {{-1, 2}}, {{2, -3}}, {{-2, -1}, {1, 1}}};
  for (DType dtype : kAllDTypes) {
    const Tensor x = cast(spread_tensor<double>({2, 4, 5}, -9, 9), dtype);
    const Array plain = naive::array_of(x);
    for (PadMode mode : {PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular}) {
      for (const std::vector<Padding>& padding : paddings) {
        Index shape = plain.shape;
        const std::size_t lead = 3 - padding.size();
        for (std::size_t d = lead; d < 3; ++d)
          shape[d] += padding[d - lead].before + padding[d - lead].after;
        const Array expected = naive::pick(plain, shape, [&](Index index) {
          for (std::size_t d = lead; d < 3; ++d)
            index[d] = source_of(index[d] - padding[d - lead].before, plain.shape[d],
                                 padding[d - lead], mode);
          return index;
        });
        for (const Tensor& layout : layouts(x)) {
          INFO(dtype_name(dtype) << " mode " << static_cast<int>(mode)
                                 << naive::shape_of(shape).str());
          const Tensor y = pad(layout, padding, mode);
          CHECK(y.dtype() == dtype);
          CHECK(naive::is_equal(y, expected));
        }
      }
    }
  }
  const Tensor x = counting({2, 3});
  CHECK(values(pad(x, {{2, 2}}, PadMode::kReflect)) ==
        Numbers{2, 1, 0, 1, 2, 1, 0, 5, 4, 3, 4, 5, 4, 3});
  CHECK(values(pad(x, {{-1, 2}}, PadMode::kCircular)) == Numbers{1, 2, 1, 2, 4, 5, 4, 5});
  CHECK(values(pad(x, {{0, 1}}, PadMode::kConstant)) == Numbers{0, 1, 2, 0, 3, 4, 5, 0});
  CHECK(pad(zeros({0, 3}), {{1, 1}}, PadMode::kReflect).shape() == Shape{0, 5});
  CHECK(pad(x, {{0, 0}}, PadMode::kReflect).storage() != x.storage());
}

TEST_CASE("pad by modes: errors") {
  const Tensor x = zeros({2, 3});
  const auto text = [&](std::vector<Padding> padding, PadMode mode) {
    return thrown<InvalidArgument>([&] { pad(x, padding, mode); });
  };
  CHECK(text({{3, 1}}, PadMode::kReflect) ==
        "[pad] dim 1 of [2, 3] is padded by 3 and 1; reflection needs less than the extent");
  CHECK(text({{1, 4}}, PadMode::kCircular) ==
        "[pad] dim 1 of [2, 3] is padded by 1 and 4; circular padding needs at most the extent");
  CHECK(text({{-2, -2}}, PadMode::kReplicate) ==
        "[pad] dim 1 of [2, 3] is padded by -2 and -2; more is cut off than there is");
  CHECK(thrown<InvalidArgument>([&] {
          pad(zeros({0}), {{1, 0}}, PadMode::kReplicate);
        }) == "[pad] dim 0 of [0] is padded by 1 and 0; there is no element to replicate");
  CHECK_THAT(text({{1, 1}, {1, 1}, {1, 1}}, PadMode::kReflect),
             Catch::Contains("3 dims are padded"));
}

TEST_CASE("roll of several dims and of all elements; fliplr, flipud, rot90") {
  const Tensor x = counting({2, 3});
  CHECK(values(roll(x, 1)) == Numbers{5, 0, 1, 2, 3, 4});
  CHECK(values(roll(x, -7)) == Numbers{1, 2, 3, 4, 5, 0});
  CHECK(values(roll(x, {1, 1}, {0, 0})) == values(x));
  CHECK(all_equal(roll(x, {1, -1}, {0, 1}), roll(roll(x, 1, 0), -1, 1)));
  CHECK(all_equal(roll(x, std::vector<std::int64_t>{2}, DimList()), roll(x, 2)));
  CHECK(values(fliplr(x)) == Numbers{2, 1, 0, 5, 4, 3});
  CHECK(values(flipud(x)) == Numbers{3, 4, 5, 0, 1, 2});
  CHECK(values(rot90(x)) == Numbers{2, 5, 1, 4, 0, 3});
  CHECK(values(rot90(x, -1)) == Numbers{3, 0, 4, 1, 5, 2});
  CHECK(values(rot90(x, 5, 1, 0)) == Numbers{3, 0, 4, 1, 5, 2});
  CHECK(values(rot90(x, 2)) == Numbers{5, 4, 3, 2, 1, 0});
  CHECK(values(rot90(x, -4)) == values(x));
  CHECK(rot90(x, 1).shape() == Shape{3, 2});
  for (DType dtype : kAllDTypes) {
    const Tensor y = cast(spread_tensor<double>({3, 5, 2}, -9, 9), dtype);
    for (const Tensor& layout : layouts(y))
      CHECK(all_equal(rot90(rot90(layout, 1, 0, 2), 3, 0, 2), y));
  }
  CHECK(thrown<InvalidArgument>([&] {
          roll(x, {1, 2}, {0});
        }) == "[roll] 2 shifts for 1 dims; give one for each");
  CHECK(thrown<InvalidArgument>([&] { rot90(x, 1, 0, -2); }) ==
        "[rot90] both dims are 0; name two different ones");
  CHECK(thrown<InvalidArgument>([&] { fliplr(zeros({3})); }) ==
        "[fliplr] needs at least 2 dims, got shape [3]; unsqueeze it");
  CHECK(thrown<InvalidArgument>([&] { flipud(zeros({})); }) ==
        "[flipud] needs at least 1 dim, got a 0-d tensor; unsqueeze it");
}

TEST_CASE("repeat_interleave with counts") {
  for (DType dtype : kAllDTypes) {
    const Tensor x = cast(spread_tensor<double>({3, 4}, -9, 9), dtype);
    const Array plain = naive::array_of(x);
    for (const Tensor& layout : layouts(x)) {
      const std::vector<std::int64_t> times = {2, 0, 3, 1};
      std::vector<std::int64_t> from;
      for (std::size_t i = 0; i < times.size(); ++i)
        from.insert(from.end(), static_cast<std::size_t>(times[i]), static_cast<std::int64_t>(i));
      const Array expected = naive::pick(plain, {3, 6}, [&](const Index& index) {
        return Index{index[0], from[static_cast<std::size_t>(index[1])]};
      });
      CHECK(naive::is_equal(repeat_interleave(layout, counts(times), -1), expected));
      CHECK(naive::is_equal(
          repeat_interleave(layout, cast(counts(times), DType::kI32), 1, {.output_size = 6}),
          expected));
      CHECK(all_equal(repeat_interleave(layout, counts({2}), 0), repeat_interleave(x, 2, 0)));
    }
  }
  CHECK(repeat_interleave(zeros({2, 3}), counts({0, 0}), 0).shape() == Shape{0, 3});
  CHECK(repeat_interleave(zeros({0}), counts({}), 0).shape() == Shape{0});
  const Tensor on_null = zeros({2}, {.device = kNull}),
               one_each = ones({2}, {.dtype = DType::kI64, .device = kNull});
  CHECK(repeat_interleave(on_null, one_each, 0, {.output_size = 9}).shape() == Shape{9});
  CHECK(thrown<StateError>([&] { repeat_interleave(on_null, one_each, 0); }) ==
        "[repeat_interleave] the sum of the counts depends on values, and tensors on the null "
        "device have none; give output_size");
}

TEST_CASE("repeat_interleave with counts: errors") {
  const Tensor x = zeros({2});
  const auto text = [](auto body) { return thrown_by_kernel<InvalidArgument>(body); };
  CHECK(text([&] {
          repeat_interleave(x, counts({1, -2}), 0);
        }) == "[repeat_interleave] a count is -2; counts must not be negative");
  CHECK(text([&] {
          repeat_interleave(x, counts({1, -1}), 0, {.output_size = 1});
        }) == "[repeat_interleave] a count is negative; it must not be");
  CHECK(text([&] {
          repeat_interleave(x, counts({1, 2}), 0, {.output_size = 2});
        }) ==
        "[repeat_interleave] the counts add up to more than output_size, which is 2; give their "
        "sum");
  CHECK(text([&] {
          repeat_interleave(x, counts({3, 4}), 0, {.output_size = 2});
        }) ==
        "[repeat_interleave] the counts add up to more than output_size, which is 2; give their "
        "sum");
  CHECK_THAT(
      text([&] {
        repeat_interleave(x, counts({1, 2}), 0, {.output_size = 4});
      }),
      Catch::Contains("[repeat_interleave] output_size goes beyond the sum of the 2 counts"));
  CHECK(text([&] {
          repeat_interleave(x, counts({1, 2}), 0, {.output_size = -4});
        }) == "[repeat_interleave] output_size is -4; it must not be negative");
  CHECK(text([&] {
          repeat_interleave(x, counts({1, 2, 3}), 0);
        }) ==
        "[repeat_interleave] the counts have shape [3], and dim 0 of [2] has 2 entries; give one "
        "count for each");
  CHECK(text([&] { repeat_interleave(x, ones({2}), 0); }) ==
        "[repeat_interleave] the counts have dtype f32; they must be i64 or i32");
}

TEST_CASE("unfold: windows as views") {
  const Tensor x = counting({2, 7});
  const Tensor y = x.unfold(1, 3, 2);
  CHECK(y.shape() == Shape{2, 3, 3});
  CHECK(y.storage() == x.storage());
  CHECK(values(y) == Numbers{0, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 9, 9, 10, 11, 11, 12, 13});
  CHECK(values(unfold(x.transpose(0, 1), 0, 7, 1)) == values(x));
  CHECK(x.unfold(-1, 0, 1).shape() == Shape{2, 8, 0});
  CHECK(Tensor::scalar(1).unfold(0, 1, 1).shape() == Shape{1});
  CHECK(Tensor::scalar(1).unfold(0, 0, 1).shape() == Shape{0});
  CHECK(
      thrown<InvalidArgument>([&] { (void)x.unfold(1, 8, 1); }) ==
      "[unfold] windows of 8 elements do not fit into dim 1 of shape [2, 7]; give 0 <= size <= 7");
  CHECK(thrown<InvalidArgument>([&] { (void)x.unfold(1, 2, 0); }) ==
        "[unfold] the step is 0; it must be at least 1");
}

TEST_CASE("squeeze of listed dims, movedim of several, other names") {
  const Tensor x = zeros({1, 3, 1, 2});
  CHECK(x.squeeze(1).shape() == x.shape());
  CHECK(x.squeeze({0, 1}).shape() == Shape{3, 1, 2});
  CHECK(squeeze(x, {0, -2}).shape() == Shape{3, 2});
  CHECK(x.squeeze(DimList()).shape() == x.shape());
  CHECK(Tensor::scalar(1).squeeze(0).shape() == Shape{});
  CHECK(thrown<InvalidArgument>([&] {
          (void)x.squeeze({0, -4});
        }) == "[squeeze] dim -4 is listed twice; name each dim once");
  const Tensor y = counting({2, 3, 4, 5});
  CHECK(movedim(y, {0, 1}, {-1, 0}).shape() == Shape{3, 4, 5, 2});
  CHECK(all_equal(contiguous(movedim(y, {0, 1}, {-1, 0})), contiguous(y.permute({1, 2, 3, 0}))));
  CHECK(all_equal(contiguous(movedim(y, {3, 1}, {0, 2})), contiguous(y.permute({3, 0, 1, 2}))));
  CHECK(thrown<InvalidArgument>([&] {
          movedim(y, {0, 1}, {2});
        }) == "[movedim] 2 dims are moved to 1 places; give as many of both");
  CHECK_THAT(thrown<InvalidArgument>([&] {
               movedim(y, {0, 1}, {2, -2});
             }),
             Catch::Contains("[movedim] dim -2 is listed twice"));
  CHECK(swapaxes(y, 0, -1).shape() == Shape{5, 3, 4, 2});
  CHECK(swapdims(y, 1, 2).shape() == Shape{2, 4, 3, 5});
  CHECK(broadcast_to(zeros({3, 1}), {2, 3, 4}).shape() == Shape{2, 3, 4});
  CHECK(expand_as(zeros({4, 1}), y).shape() == y.shape());
  CHECK(view_as(y, zeros({6, 20})).shape() == Shape{6, 20});
  CHECK(reshape_as(y.transpose(0, 1), zeros({120})).shape() == Shape{120});
  CHECK(values(ravel(counting({2, 3}).transpose(0, 1))) == Numbers{0, 3, 1, 4, 2, 5});
  CHECK(ravel(y).storage() == y.storage());
  CHECK(ravel(Tensor::scalar(2)).shape() == Shape{1});
  CHECK(thrown<InvalidArgument>([&] { reshape_as(y, zeros({7})); }) ==
        "[reshape_as] shape [2, 3, 4, 5] has 120 elements, and [7] has 7; they must agree");
}

TEST_CASE("logspace") {
  const TensorOptions wide{.dtype = DType::kF64};
  CHECK(values(logspace(0, 3, 4, 10, wide)) == Numbers{1, 10, 100, 1000});
  CHECK(values(logspace(3, 0, 4, 2, wide)) == Numbers{8, 4, 2, 1});
  CHECK(values(logspace(1, 5, 1, 2, wide)) == Numbers{2});
  CHECK(logspace(0, 1, 0).numel() == 0);
  CHECK(logspace(0, 2, 3, 10, {.dtype = DType::kBF16}).dtype() == DType::kBF16);
  CHECK(thrown<InvalidArgument>([&] { logspace(0, 1, -1); }) ==
        "[logspace] the count is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([&] { logspace(0, 1, 2, 10, {.dtype = DType::kI64}); }) ==
        "[logspace] needs a floating dtype, got i64");
}

}  // namespace
}  // namespace tessera
