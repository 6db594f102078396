// 8-bit gathers: rounding compared with a slow loop, training compared with a reference that rounds
// by hand, and the bytes sent.

#include "tessera/fsdp/int8_extension.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/precision/extension_training.h"
#include "tessera/tests/support/collective_records.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;
using fsdp::GatherExtension;

/// The formulas of int8_extension.h, element by element.
Tensor by_hand(const Tensor& stored, std::int64_t block) {
  const std::int64_t rows = stored.dim(0), row = stored.numel() / std::max<std::int64_t>(1, rows);
  std::vector<float> x = cast(stored, DType::kF32).to_vector<float>();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t first = 0; first < row; first += block) {
      const auto begin = x.begin() + r * row + first;
      const auto end = begin + std::min(block, row - first);
      float largest = 0;
      for (auto at = begin; at != end; ++at) largest = std::max(largest, std::abs(*at));
      const float scale = largest / 127.0F;
      for (auto at = begin; at != end; ++at) {
        const float code = scale == 0 ? 0.0F : std::nearbyint(*at / scale);
        *at = (std::clamp(code, -127.0F, 127.0F) + 0.0F) * scale;  // codes have no -0
      }
    }
  }
  return Tensor::from_vector(x, stored.shape());
}

/// Packs and unpacks through one rank's extension.
Tensor round_trip(const Tensor& rows, std::int64_t block, DType to = DType::kF32) {
  fsdp::Int8Extension extension(block);
  const GatherExtension::GatherShard shard = {.rows = rows, .real_rows = rows.dim(0)};
  const std::vector<Tensor> sent = extension.pack(shard);
  const Tensor out = Tensor::empty(rows.shape(), {.dtype = to});
  extension.unpack(shard, sent, out);
  return out;
}

TEST_CASE("int8: values are rounded as the header says, within its bound") {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 16}, Shape{5, 37}, Shape{2, 3, 50}, Shape{4},
                             Shape{0, 8}, Shape{3, 128}, Shape{2, 1000}}) {
    for (const std::int64_t block : {1, 16, 128}) {
      INFO(shape.str() << " in blocks of " << block);
      const Tensor x = Tensor::empty(shape, {});
      random::fill_normal(x, random::named_key(5, "x"), random::whole(shape), 0, 3);
      const Tensor y = round_trip(x, block);
      const CloseResult same = all_equal(y, by_hand(x, block));
      INFO(same.message);
      CHECK(same);
      const auto before = x.to_vector<float>(), after = y.to_vector<float>();
      float largest = 0;
      for (const float value : before) largest = std::max(largest, std::abs(value));
      for (std::size_t i = 0; i < before.size(); ++i)
        CHECK(std::abs(before[i] - after[i]) <= largest / 254 * 1.0001F);
      CHECK(all_equal(round_trip(cast(x, DType::kF64), block), y));
      CHECK(all_equal(round_trip(x, block, DType::kBF16), cast(y, DType::kBF16)));
    }
  }
}

TEST_CASE("int8: zeros stay, what is not finite is not hidden") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const Tensor x = Tensor::from_vector<float>({0, 0, 3, -infinity, nan, 1, -5, 5}, {4, 2});
  const std::vector<float> y = round_trip(x, 2).to_vector<float>();
  CHECK(y[0] == 0);
  CHECK(y[1] == 0);
  for (std::size_t i = 2; i < 6; ++i) CHECK_FALSE(std::isfinite(y[i]));
  CHECK(y[6] == -5);
  CHECK(y[7] == 5);
}

TEST_CASE("int8: a block has elements; short rows travel as they are") {
  for (const std::int64_t block : {std::int64_t{0}, std::int64_t{-3}}) {
    CHECK_THROWS_AS(fsdp::int8_gather({.block = block}), InvalidArgument);
    CHECK_THROWS_AS(fsdp::Int8Extension(block), InvalidArgument);
  }
  Rows model;
  const fsdp::ExtensionOf choose = fsdp::int8_gather();
  CHECK(choose(model.first().weight()) != nullptr);
  CHECK(choose(model.first().bias()) == nullptr);
  CHECK(choose(model.second().weight()) == nullptr);  // 7 elements
  CHECK(fsdp::int8_gather({.smallest_row = 7})(model.second().weight()) != nullptr);
}

Tensor weights_by_hand(const Tensor& stored) {
  return stored.ndim() == 2 ? by_hand(stored, 16) : stored;
}
const fsdp::Int8Options kSmall = {.block = 16, .smallest_row = 2};

TESSERA_RANK_TEST("int8: training equals the reference that rounds by hand", "[fsdp]") {
  for (const fsdp::ReshardAfterForward reshard :
       {fsdp::ReshardAfterForward(true), fsdp::ReshardAfterForward(false)}) {
    Rows sharded;
    train_with_extension(t,
                         {.name = "int8",
                          .options = {.mesh = t.world().mesh(),
                                      .reshard_after_forward = reshard,
                                      .gather_extension = fsdp::int8_gather(kSmall)},
                          .ranks = {.shards = t.size()},
                          .as_sent = weights_by_hand},
                         sharded);
    t.check(fsdp::of(sharded).copies().extension > 0, "nothing was counted");
  }
  Rows low;
  train_with_extension(
      t,
      {.name = "int8 to bf16",
       .options = {.mesh = t.world().mesh(),
                   .mixed_precision = {.param_dtype = DType::kBF16, .output_dtype = DType::kBF16},
                   .gather_extension = fsdp::int8_gather(kSmall)},
       .reference = {.param = DType::kBF16, .reduce = DType::kBF16},
       .ranks = {.shards = t.size()},
       .as_sent = weights_by_hand},
      low);
}

TESSERA_RANK_TEST_WITH("int8: over the shards of hybrid sharding", "[fsdp]", {.worlds = {4, 6}}) {
  const int shards = t.size() / 2;
  const DeviceMesh mesh({"replica", "shard"}, {2, shards}, t.world().group(), t.world().device());
  for (const bool over_replicas : {false, true}) {
    Rows sharded;
    train_with_extension(t,
                         {.name = "int8, hybrid",
                          .options = {.mesh = mesh,
                                      .shard_optimizer_over_replicas = over_replicas,
                                      .gather_extension = fsdp::int8_gather(kSmall)},
                          .ranks = {.shards = shards, .replicas = 2},
                          .as_sent = weights_by_hand},
                         sharded);
  }
}

TESSERA_RANK_TEST("int8: a quarter of f32's bytes and the scales are sent", "[fsdp]") {
  constexpr std::int64_t kIn = 512, kOut = 7;
  nn::Linear sharded({.in = kIn, .out = kOut});
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh(), .gather_extension = fsdp::int8_gather()});
  nn::initialize(sharded, {.seed = 3});
  const auto records = collectives_of(
      [&] { backward(row_loss(sharded(Variable(random_rows(2, kIn, DType::kF32, 1))))); });
  const std::int64_t peers = t.size() - 1, rows = (kOut + peers) / t.size();
  const std::int64_t weight = rows * (kIn + 4 * kIn / 128), bias = rows * 4;
  t.check(bytes_of(records, "all_gather") == peers * (weight + bias), "{} bytes, expected {}",
          bytes_of(records, "all_gather"), peers * (weight + bias));
  t.check(10 * (weight + bias) < 3 * rows * 4 * (kIn + 1), "more than 0.3 of f32's");
}

}  // namespace
}  // namespace tessera::testing
