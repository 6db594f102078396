// Gather extensions: their arguments, several tensors per parameter, lower precision on the wire,
// beside parameters without an extension.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/precision/extension_training.h"
#include "tessera/tests/support/collective_records.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;
using fsdp::GatherExtension;

/// f32 as bf16 and a remainder, which together give the value again.
class TwoParts final : public GatherExtension {
 public:
  std::vector<Tensor> pack(const GatherShard& shard) override {
    const Tensor coarse = cast(shard.rows, DType::kBF16);
    return {coarse, sub(shard.rows, cast(coarse, DType::kF32))};
  }
  void unpack(const GatherShard& /*shard*/, std::span<const Tensor> gathered,
              const Tensor& rows) override {
    const Tensor whole = add(cast(gathered[0], DType::kF32), gathered[1]);
    copy_(rows, reshape(whole, rows.shape()));
  }
};

/// Half the bytes of f32.
class AsBf16 final : public GatherExtension {
 public:
  std::vector<Tensor> pack(const GatherShard& shard) override {
    return {cast(shard.rows, DType::kBF16)};
  }
  void unpack(const GatherShard& /*shard*/, std::span<const Tensor> gathered,
              const Tensor& rows) override {
    copy_(rows, gathered[0].view(rows.shape()));
  }
};

/// Sends the rows unchanged, and records its arguments.
class Watching final : public GatherExtension {
 public:
  std::vector<Tensor> pack(const GatherShard& shard) override {
    told = shard;
    ++packed;
    return {clone(shard.rows)};
  }
  void unpack(const GatherShard& shard, std::span<const Tensor> gathered,
              const Tensor& rows) override {
    ++unpacked;
    gathered_shape = gathered[0].shape();
    rows_shape = rows.shape();
    rows_dtype = rows.dtype();
    ranks_agree = shard.ranks == told.ranks && shard.rank == told.rank;
    copy_(rows, gathered[0].view(rows.shape()));
  }
  GatherShard told;
  int packed = 0, unpacked = 0;
  Shape gathered_shape, rows_shape;
  DType rows_dtype = DType::kU8;
  bool ranks_agree = false;
};

template <class Extension>
fsdp::ExtensionOf for_all() {
  return [](const nn::Parameter&) { return std::make_shared<Extension>(); };
}
/// Only for parameters with two dims.
template <class Extension>
fsdp::ExtensionOf for_matrices() {
  return [](const nn::Parameter& parameter) -> std::shared_ptr<GatherExtension> {
    return parameter.shape().ndim() == 2 ? std::make_shared<Extension>() : nullptr;
  };
}

Tensor matrices_in_bf16(const Tensor& stored) {
  return stored.ndim() == 2 ? cast(cast(stored, DType::kBF16), stored.dtype()) : stored;
}

TESSERA_RANK_TEST("extensions: two tensors that make up the value train as without", "[fsdp]") {
  for (const fsdp::ReshardAfterForward reshard :
       {fsdp::ReshardAfterForward(true), fsdp::ReshardAfterForward(false)}) {
    for (const bool all : {false, true}) {
      Rows sharded;
      train_with_extension(
          t,
          {.name = "two parts",
           .options = {.mesh = t.world().mesh(),
                       .reshard_after_forward = reshard,
                       .gather_extension = all ? for_all<TwoParts>() : for_matrices<TwoParts>()},
           .ranks = {.shards = t.size()}},
          sharded);
    }
  }
}

TESSERA_RANK_TEST("extensions: values in bf16 on the wire, f32 where they are used", "[fsdp]") {
  Rows sharded;
  train_with_extension(
      t,
      {.name = "bf16 travel",
       .options = {.mesh = t.world().mesh(), .gather_extension = for_matrices<AsBf16>()},
       .ranks = {.shards = t.size()},
       .as_sent = matrices_in_bf16},
      sharded);
  const Variable x(random_rows(2, 40, DType::kF32, 1));
  const auto records = collectives_of([&] { backward(row_loss(sharded(x))); });
  const std::set<DType> expected = {DType::kBF16, DType::kF32};
  t.check(dtypes_of(records, "all_gather") == (t.size() > 1 ? expected : std::set<DType>()) ||
              t.size() == 1,
          "other dtypes travel");
  const std::int64_t peers = t.size() - 1;
  const auto rows = [&](std::int64_t n) { return (n + peers) / t.size(); };
  const std::int64_t once = peers * (rows(7) * (40 * 2 + 4) + rows(3) * (7 * 2 + 4));
  t.check(bytes_of(records, "all_gather") == 2 * once, "{} bytes, expected {}",
          bytes_of(records, "all_gather"), 2 * once);
  // Copies are counted by cause: packing and unpacking.
  t.check(fsdp::of(sharded).copies().extension > 0 && fsdp::of(sharded).copies().cast == 0,
          "counted elsewhere");
}

/// A layer of 7 rows with a recording extension, after one step on `shards` shards.
void check_told(RankTest& t, const fsdp::FullyShardOptions& given, int shards, int rank) {
  const auto watching = std::make_shared<Watching>();
  fsdp::FullyShardOptions options = given;
  options.gather_extension = [&](const nn::Parameter& p) -> std::shared_ptr<GatherExtension> {
    return p.shape().ndim() == 2 ? watching : nullptr;
  };
  Rows model;
  fsdp::fully_shard(model.first(), options);
  fsdp::fully_shard(model, {.mesh = options.mesh});
  nn::initialize(model, {.seed = 3});
  backward(row_loss(cast(model(Variable(random_rows(2, 40, DType::kF32, 1))), DType::kF32)));
  const distributed::Chunk chunk = distributed::chunk_of(7, shards, rank);
  const GatherExtension::GatherShard& told = watching->told;
  const int gathers = shards == 1 && !options.offload ? 1 : 2;  // one rank keeps its values
  t.check(watching->packed == gathers && watching->unpacked == gathers,
          "packed {} times, unpacked {}", watching->packed, watching->unpacked);
  t.check(told.ranks == shards && told.rank == rank && watching->ranks_agree, "{} of {} ranks",
          told.rank, told.ranks);
  t.check(told.real_rows == chunk.rows(), "{} real rows, expected {}", told.real_rows,
          chunk.rows());
  t.check(told.rows.shape() == Shape{chunk.padded_rows, 40}, "rows {}", told.rows.shape().str());
  t.check(told.rows.dtype() == DType::kF32, "rows are {}", dtype_name(told.rows.dtype()));
  t.check(watching->gathered_shape == Shape{shards, chunk.padded_rows, 40}, "gathered {}",
          watching->gathered_shape.str());
  t.check(watching->rows_shape == Shape{shards * chunk.padded_rows, 40}, "to be written: {}",
          watching->rows_shape.str());
  t.check(watching->rows_dtype == options.mixed_precision.param_dtype.value_or(DType::kF32),
          "to be written in {}", dtype_name(watching->rows_dtype));
}

TESSERA_RANK_TEST("extensions: are told of padded rows, and how many are real", "[fsdp]") {
  check_told(t, {.mesh = t.world().mesh()}, t.size(), t.rank());
  check_told(t,
             {.mesh = t.world().mesh(),
              .mixed_precision = {.param_dtype = DType::kBF16, .output_dtype = DType::kF32}},
             t.size(), t.rank());
  check_told(t, {.mesh = t.world().mesh(), .offload = fsdp::CpuOffload{}}, t.size(), t.rank());
}

TESSERA_RANK_TEST_WITH("extensions: under hybrid sharding see the shard axis alone", "[fsdp]",
                       {.worlds = {4, 8}}) {
  const int shards = t.size() / 2;
  const DeviceMesh mesh({"replica", "shard"}, {2, shards}, t.world().group(), t.world().device());
  for (const bool over_replicas : {false, true}) {
    check_told(t, {.mesh = mesh, .shard_optimizer_over_replicas = over_replicas}, shards,
               t.rank() % shards);
    Rows sharded;
    train_with_extension(t,
                         {.name = "hybrid, bf16 travel",
                          .options = {.mesh = mesh,
                                      .shard_optimizer_over_replicas = over_replicas,
                                      .gather_extension = for_matrices<AsBf16>()},
                          .ranks = {.shards = shards, .replicas = 2},
                          .as_sent = matrices_in_bf16},
                         sharded);
  }
}

TESSERA_RANK_TEST_WITH("extensions: with a part kept after forward, and another dim cut", "[fsdp]",
                       {.worlds = {4}}) {
  Rows kept;
  train_with_extension(t,
                       {.name = "two ranks keep",
                        .options = {.mesh = t.world().mesh(),
                                    .reshard_after_forward = 2,
                                    .gather_extension = for_matrices<AsBf16>()},
                        .ranks = {.shards = 4},
                        .as_sent = matrices_in_bf16},
                       kept);
  const auto watching = std::make_shared<Watching>();
  nn::Linear linear({.in = 8, .out = 3, .bias = false});
  fsdp::fully_shard(
      linear, {.mesh = t.world().mesh(),
               .shard_placement = [](const nn::Parameter&) { return distributed::Shard{.dim = 1}; },
               .gather_extension = [&](const nn::Parameter&) { return watching; }});
  nn::initialize(linear, {.seed = 3});
  nn::Linear plain({.in = 8, .out = 3, .bias = false});
  nn::initialize(plain, {.seed = 3});
  const Variable x(random_rows(2, 8, DType::kF32, 1));
  // On a GPU the bits of a product depend on where its operands lie.
  if (t.world().device().is_cuda()) {
    const CloseResult close =
        all_close(linear(x).tensor(), plain(x).tensor(), {.rtol = 1e-5, .atol = 1e-6});
    t.check(close.ok, "columns: {}", close.message);
  } else {
    t.check_equal(linear(x).tensor(), plain(x).tensor(), "columns");
  }
  t.check(watching->told.rows.shape() == Shape{2, 3}, "the cut dim does not come first: {}",
          watching->told.rows.shape().str());
}

}  // namespace
}  // namespace tessera::testing
