// Padding by modes, turns, stacking, splitting, diagonals and windows: the value against the tensor
// operation, derivatives against differences.
#include <catch2/catch.hpp>

#include "tessera/autograd/ops/diagonal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/ops/shape.h"
#include "tessera/autograd/ops/stacking.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

template <class F>
void check_both(const F& function, const Inputs& inputs) {
  std::vector<Tensor> tensors;
  for (const Variable& input : inputs) tensors.push_back(input.tensor());
  CHECK(values(function(inputs)) == values(function(tensors)));
  check_twice([&](const Inputs& in) { return square(function(in)); }, inputs);
}

TEST_CASE("pad by modes: derivatives") {
  for (PadMode mode :
       {PadMode::kConstant, PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular}) {
    INFO("mode " << static_cast<int>(mode));
    check_both([&](const auto& in) { return pad(in[0], {{2, 1}}, mode); }, {leaf({2, 3})});
    check_both(
        [&](const auto& in) {
          return pad(in[0], {{1, 0}, {-1, 2}}, mode);
        },
        {leaf({2, 3, 4})});
    check_both([&](const auto& in) { return pad(in[0], {{0, 0}}, mode); }, {leaf({3})});
  }
}

TEST_CASE("turns, rolls, repetitions and shapes: derivatives") {
  const Tensor counts = Tensor::from_vector<std::int64_t>({2, 0, 3}, {3});
  const Inputs x = {leaf({3, 4})};
  check_both([](const auto& in) { return roll(in[0], 5); }, x);
  check_both([](const auto& in) { return roll(in[0], {1, -2}, {1, 0}); }, x);
  check_both([](const auto& in) { return fliplr(in[0]); }, x);
  check_both([](const auto& in) { return flipud(in[0]); }, x);
  for (std::int64_t times : {0, 1, 2, 3})
    check_both([=](const auto& in) { return rot90(in[0], times); }, x);
  check_both([&](const auto& in) { return repeat_interleave(in[0], counts, 0); }, x);
  check_both(
      [&](const auto& in) { return repeat_interleave(in[0], counts, 0, {.output_size = 5}); }, x);
  check_both([](const auto& in) { return ravel(in[0]); }, x);
  check_both([](const auto& in) { return reshape_as(in[0], reshape(in[0], {2, 6})); }, x);
}

TEST_CASE("stacking and splitting: derivatives") {
  const std::vector<std::int64_t> starts = {2, 1, -1};
  const Inputs rows = {leaf({3}), leaf({3}, -1, 1, 0.6)}, x = {leaf({2, 4})};
  check_both([](const auto& in) { return atleast_3d(in[0]); }, rows);
  check_both([](const auto& in) { return hstack(in); }, rows);
  check_both([](const auto& in) { return vstack(in); }, rows);
  check_both([](const auto& in) { return row_stack(in); }, rows);
  check_both([](const auto& in) { return dstack(in); }, rows);
  check_both([](const auto& in) { return column_stack(in); }, rows);
  check_both([](const auto& in) { return block_diag(in); },
             {leaf({2, 3}), leaf({2}), leaf(Shape{})});
  check_both([](const auto& in) { return cartesian_prod(in); }, rows);
  check_both([](const auto& in) { return mul(meshgrid(in)[0], meshgrid(in)[1]); }, rows);
  check_both([](const auto& in) { return meshgrid(in, MeshIndexing::kXY)[0]; }, rows);
  check_both(
      [](const auto& in) {
        const auto all = broadcast_tensors(in);
        return mul(all[0], all[1]);
      },
      {leaf({3, 1}), leaf({4})});
  check_both([](const auto& in) { return tensor_split(in[0], 3, 1)[0]; }, x);
  check_both([&](const auto& in) { return cat(tensor_split(in[0], starts, 1), 1); }, x);
  check_both([](const auto& in) { return hsplit(in[0], 2)[1]; }, x);
  check_both([&](const auto& in) { return hsplit(in[0], starts)[2]; }, x);
  check_both([](const auto& in) { return vsplit(in[0], 2)[1]; }, x);
  check_both([&](const auto& in) { return vsplit(in[0], std::vector<std::int64_t>{1})[1]; }, x);
  check_both([](const auto& in) { return dsplit(in[0], 2)[1]; }, {leaf({1, 2, 4})});
  check_both([](const auto& in) { return dsplit(in[0], std::vector<std::int64_t>{1})[1]; },
             {leaf({1, 2, 3})});
  check_both([](const auto& in) { return atleast_1d(in[0]); }, {leaf(Shape{})});
  check_both([](const auto& in) { return atleast_2d(in[0]); }, {leaf({3})});
}

TEST_CASE("diagonals, windows and other views: derivatives") {
  const Inputs x = {leaf({3, 4})};
  for (std::int64_t offset : {-1, 0, 2, 9}) {
    check_both([=](const auto& in) { return diagonal(in[0], offset); }, x);
    check_both([=](const auto& in) { return diag(in[0], offset); }, x);
  }
  for (std::int64_t offset : {-1, 0, 2}) {
    check_both([=](const auto& in) { return diag(in[0], offset); }, {leaf({3})});
    check_both([=](const auto& in) { return diag_embed(in[0], offset); }, {leaf({2, 3})});
    check_both([=](const auto& in) { return diag_embed(in[0], offset, 0, -2); }, {leaf({2, 2})});
  }
  check_both([](const auto& in) { return diagonal(in[0], 1, -1, 0); }, {leaf({2, 3, 4})});
  check_both([](const auto& in) { return trace(in[0]); }, x);
  check_both([](const auto& in) { return unfold(in[0], 1, 3, 1); }, x);
  check_both([](const auto& in) { return unfold(in[0], 0, 2, 2); }, x);
  check_both([](const auto& in) { return unfold(in[0], -2, 2, 1); }, {leaf({2, 3, 2})});
  check_both([](const auto& in) { return unfold(in[0], 0, 1, 1); }, {leaf(Shape{})});
  check_both([](const auto& in) { return squeeze(in[0], {0, 1, 2}); }, {leaf({1, 3, 1})});
  check_both([](const auto& in) { return in[0].squeeze(1); }, x);
  check_both([](const auto& in) { return movedim(in[0], {0, 1}, {2, 0}); }, {leaf({2, 3, 2})});
  check_both([](const auto& in) { return swapaxes(in[0], 0, 1); }, x);
  check_both([](const auto& in) { return swapdims(in[0], 0, 1); }, x);
  check_both([](const auto& in) { return broadcast_to(in[0], {2, 3, 4}); }, x);
  check_both(
      [](const auto& in) {
        return expand_as(in[0], expand(in[0], {3, 4}));
      },
      {leaf({3, 1})});
  check_both([](const auto& in) { return view_as(in[0], reshape(in[0], {12})); }, x);
  CHECK(values(x[0].diagonal(1)) == values(x[0].tensor().diagonal(1)));
  CHECK(values(x[0].unfold(1, 2, 2)) == values(x[0].tensor().unfold(1, 2, 2)));
  CHECK(x[0].squeeze({0, 1}).shape() == Shape{3, 4});
}

}  // namespace
}  // namespace tessera::testing
