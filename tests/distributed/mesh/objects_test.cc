// JSON values, texts and packed lists between ranks, and whether ranks hold the same.
#include "tessera/distributed/objects.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/distributed/parameters/rank_equality.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::assert_equal_across_ranks;
using distributed::DeviceMesh;
using distributed::Json;
using distributed::NamedTensor;

std::string text_of(int rank) {
  return std::string(static_cast<std::size_t>(rank) * 3, static_cast<char>('a' + rank)) +
         std::string("\0\xff", 2);
}

Json object_of(int rank) {
  Json out = {{"rank", rank},
              {"a key before", std::string(static_cast<std::size_t>(rank) * 100, 'x')}};
  out["list"] = {1, -2.5, true, nullptr, "\u00e9"};
  out["large"] = std::uint64_t{1} << 63;
  out["tenth"] = 0.1 * rank;
  return out;
}

}  // namespace

TESSERA_RANK_TEST("texts of any bytes and any length reach the ranks they should", "[objects]") {
  const int root = t.size() - 1;
  t.check(broadcast_text(t.group(), text_of(t.rank()), root) == text_of(root), "broadcast");
  t.check(broadcast_text(t.group(), t.rank() == root ? "" : "unused", root).empty(),
          "an empty one");
  const std::vector<std::string> all = all_gather_texts(t.group(), text_of(t.rank()));
  const std::vector<std::string> gathered = gather_texts(t.group(), text_of(t.rank()), root);
  t.check(all.size() == static_cast<std::size_t>(t.size()), "{} texts", all.size());
  t.check(gathered.size() == (t.rank() == root ? all.size() : 0), "{} gathered", gathered.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    t.check(all[rank] == text_of(static_cast<int>(rank)), "text {}", rank);
    if (t.rank() == root) t.check(gathered[rank] == all[rank], "gathered {}", rank);
  }
  for (const std::string& text : all_gather_texts(t.group(), "")) t.check(text.empty(), "empty");
}

TESSERA_RANK_TEST("objects arrive with the order of their keys and every bit of their numbers",
                  "[objects]") {
  const int root = t.size() / 2;
  t.check(broadcast_object(t.group(), object_of(t.rank()), root) == object_of(root), "broadcast");
  t.check(broadcast_object(t.group(), object_of(t.rank()), root).dump() == object_of(root).dump(),
          "order of keys");
  const std::vector<Json> all = all_gather_objects(t.group(), object_of(t.rank()));
  for (int rank = 0; rank < t.size(); ++rank)
    t.check(all[static_cast<std::size_t>(rank)] == object_of(rank), "object {}", rank);
  const std::vector<Json> gathered = gather_objects(t.group(), t.rank(), root);
  t.check(gathered.size() == (t.rank() == root ? all.size() : 0), "{} gathered", gathered.size());
  for (std::size_t rank = 0; rank < gathered.size(); ++rank)
    t.check(gathered[rank] == static_cast<int>(rank), "gathered {}", rank);
  const Json odd =
      broadcast_object(t.group(), {std::numeric_limits<double>::infinity(), std::nan(""), -0.0}, 0);
  t.check(std::isinf(odd[0].get<double>()) && std::isnan(odd[1].get<double>()) &&
              std::signbit(odd[2].get<double>()),
          "{}", odd.dump());
  t.check(broadcast_object(t.group(), nullptr, 0).is_null(), "null");
}

TESSERA_RANK_TEST("a root that is not in the group, and ranks that send something else",
                  "[objects]") {
  for (const int root : {-1, t.size()}) {
    t.check_throws<InvalidArgument>(fmt::format("{}", root),
                                    [&] { (void)broadcast_object(t.group(), 1, root); });
    t.check_throws<InvalidArgument>(fmt::format("{}", root),
                                    [&] { (void)gather_objects(t.group(), 1, root); });
  }
  const std::string text = "what came from rank 0 of group \"world\" is not JSON: 2 bytes";
  if (t.rank() == 0) {
    (void)all_gather_texts(t.group(), "\xff\xff");
    (void)broadcast_text(t.group(), "\xff\xff", 0);
  } else {
    t.check_throws<CollectiveError>(text, [&] { (void)all_gather_objects(t.group(), 1); });
    t.check_throws<CollectiveError>(text, [&] { (void)broadcast_object(t.group(), 1, 0); });
  }
}

TESSERA_RANK_TEST_WITH("packed lists come back as they were, also between ranks", "[objects]",
                       {.worlds = {1, 3}}) {
  using distributed::packed_numbers, distributed::packed_texts;
  using distributed::unpacked_numbers, distributed::unpacked_texts;
  const std::string bytes("\0\xff 3:", 5);
  const std::vector<std::vector<std::string>> lists = {
      {},
      {""},
      {"", "", bytes},
      {bytes, std::string(1000, '\n'), "x"},
      {packed_texts({bytes, ""}), packed_texts({})}};
  for (const std::vector<std::string>& texts : lists)
    t.check(unpacked_texts(packed_texts(texts)) == texts, "{} texts", texts.size());
  const std::vector<std::int64_t> numbers = {0, -1, std::numeric_limits<std::int64_t>::min(),
                                             std::numeric_limits<std::int64_t>::max(),
                                             std::bit_cast<std::int64_t>(std::nan("7"))};
  t.check(unpacked_numbers(packed_numbers(numbers)) == numbers, "numbers");
  t.check(unpacked_numbers(packed_numbers({})).empty(), "no numbers");
  const std::string mine = packed_texts({text_of(t.rank()), packed_numbers({t.rank(), -1})});
  int rank = 0;
  for (const std::string& each : all_gather_texts(t.group(), mine)) {
    const std::vector<std::string> parts = unpacked_texts(each);
    t.check(parts.size() == 2 && parts[0] == text_of(rank), "the text of {}", rank);
    t.check(unpacked_numbers(parts.back()) == std::vector<std::int64_t>{rank, -1}, "numbers");
    ++rank;
  }
}

TESSERA_RANK_TEST_WITH("what was not packed is refused", "[objects]", {.worlds = {1}}) {
  using distributed::packed_numbers, distributed::packed_texts, distributed::unpacked_texts;
  const auto refuses = [&](const std::string& text, const std::string& why) {
    t.check_throws<InvalidArgument>(why, [&] { (void)unpacked_texts(text); });
  };
  refuses(
      "\xff\xff",
      "[unpacked_texts] rank 0: 2 bytes are not a packed list of texts: number 0 is cut off; do "
      "all ranks ask for the same?");
  const std::string two = packed_texts({"one", "three"});  // 11 bytes and 13
  for (std::size_t size = 1; size < two.size(); ++size) {
    if (size == 11) continue;
    refuses(two.substr(0, size), fmt::format("{} bytes are not a packed list of texts: number {} ",
                                             size, size < 11 ? 0 : 1));
  }
  refuses(two + "x", "25 bytes are not a packed list of texts: number 2 is cut off");
  refuses(packed_numbers({-1}), "8 bytes are not a packed list of texts: number 0 is cut off");
  refuses(packed_numbers({1}), "8 bytes are not a packed list of texts: number 0 is cut off");
  t.check_throws<InvalidArgument>(
      "[unpacked_numbers] rank 0: 9 bytes are not packed numbers of 8 bytes each; do all ranks ask "
      "for the same?",
      [] { (void)distributed::unpacked_numbers("123456789"); });
}

TESSERA_RANK_TEST("tensors with equal bits pass, in any layout, and NaN equals itself",
                  "[equality]") {
  const Tensor x = arange(6, {.dtype = DType::kF32}).view({2, 3});
  const Tensor same = t.rank() % 2 == 0 ? x : contiguous(x.transpose(0, 1)).transpose(0, 1);
  const Tensor nan = full({2}, std::nan(""), {.dtype = DType::kF64});
  assert_equal_across_ranks(t.group(), std::vector<NamedTensor>{
                                           {"x", same},
                                           {"part", same.slice(1, 1, 3)},
                                           {"nan", nan},
                                           {"none", Tensor::empty({0, 2})},
                                           {"scalar", Tensor::scalar(1, {.dtype = DType::kI64})},
                                           {"null", Tensor::empty({3}, {.device = kNull})},
                                       });
  assert_equal_across_ranks(t.group(), std::vector<NamedTensor>{});
  assert_equal_across_ranks(t.group(), std::vector<NamedTensor>{{"grad", Tensor()}});
}

TESSERA_RANK_TEST_WITH("what differs is named, with the first rank that does", "[equality]",
                       {.worlds = {3, 4}}) {
  const bool other = t.rank() >= 2;
  std::vector<NamedTensor> tensors{
      {"equal", ones({2})},
      {"values", full({2}, other ? 1 : 0)},
      {"sign", full({2}, t.rank() == 1 ? -0.0 : 0.0)},
      {"dtype", zeros({2}, {.dtype = t.rank() == 1 ? DType::kF64 : DType::kF32})},
      {"shape", zeros({other ? 3 : 2})},
  };
  if (!other) tensors.push_back({"first only", ones({1})});
  if (other) tensors.push_back({"others only", ones({1})});
  t.check_throws<StateError>(
      "6 of 7 differ between the ranks of group \"world\": "
      "\"values\" (the elements of rank 2 are not those of rank 0), "
      "\"sign\" (the elements of rank 1 are not those of rank 0), "
      "\"dtype\" (f32 [2] on rank 0, f64 [2] on rank 1), "
      "\"shape\" (f32 [2] on rank 0, f32 [3] on rank 2), "
      "\"first only\" (f32 [1] on rank 0, missing on rank 2), "
      "\"others only\" (missing on rank 0, f32 [1] on rank 2); start them from one seed",
      [&] { assert_equal_across_ranks(t.group(), tensors); });
}

TESSERA_RANK_TEST_WITH("tensors of one name are all compared, and undefined ones", "[equality]",
                       {.worlds = {2}}) {
  const std::vector<NamedTensor> tensors{
      {"x", ones({2})}, {"x", full({2}, t.rank())}, {"grad", t.rank() == 0 ? ones({2}) : Tensor()}};
  t.check_throws<StateError>(
      "2 of 3 differ between the ranks of group \"world\": \"x (number 2)\" (the elements of rank "
      "1 "
      "are not those of rank 0), \"grad\" (f32 [2] on rank 0, undefined on rank 1)",
      [&] { assert_equal_across_ranks(t.group(), tensors); });
}

TESSERA_RANK_TEST("parameters and buffers of a model, plain and sharded", "[equality]") {
  nn::Linear layer({.in = 3, .out = 5});
  assert_equal_across_ranks(t.group(), layer);  // nowhere materialised
  nn::initialize(layer, {.seed = 4});
  assert_equal_across_ranks(t.group(), layer);
  nn::Linear sharded({.in = 3, .out = 5});
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh()});
  nn::initialize(sharded, {.seed = 4});
  assert_equal_across_ranks(t.group(), sharded);
  assert_equal_across_ranks(t.group(), std::vector<nn::Parameter>{sharded.weight(), layer.bias()});
  nn::Buffer buffer({.shape = {2}, .init = nn::init::constant(1)});
  buffer.set_name("mean");
  assert_equal_across_ranks(t.group(), std::vector<nn::Buffer>{buffer});
  buffer.materialize(kCpu);
  buffer.reset({.value = 1});
  assert_equal_across_ranks(t.group(), std::vector<nn::Buffer>{buffer});
  if (t.size() == 1) return;
  fill_(layer.weight().local().tensor(), t.rank());
  t.check_throws<StateError>(
      "1 of 2 differ between the ranks of group \"world\": \"weight\" (the elements of rank 1",
      [&] { assert_equal_across_ranks(t.group(), layer); });
  fill_(buffer.tensor(), t.rank());
  t.check_throws<StateError>("\"mean\" (the elements of rank 1 are not those of rank 0)", [&] {
    assert_equal_across_ranks(t.group(), std::vector<nn::Buffer>{buffer});
  });
  nn::Linear late({.in = 3, .out = 5, .bias = false});
  if (t.rank() == 0) nn::initialize(late, {.seed = 4});
  t.check_throws<StateError>(
      "\"weight\" (f32 [5, 3] on rank 0, f32 [5, 3], not materialised on rank 1)",
      [&] { assert_equal_across_ranks(t.group(), late); });
}

TESSERA_RANK_TEST_WITH("replicas of a shard are compared with each other", "[equality]",
                       {.worlds = {4}}) {
  const DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(), kCpu);
  const auto owner = std::make_shared<FakeOwner>("g");
  nn::Parameter p({.shape = {5, 2}, .init = nn::init::normal(0, 1)});
  const nn::ShardSpec spec =
      distributed::shard_spec({5, 2}, mesh, {distributed::Replicate{}, distributed::Shard{0}});
  const Shape local = spec.boxes.front().extent;
  p.set_name("up.weight");
  p.shard({.spec = spec, .mesh = make_mesh(mesh), .local_shape = local, .padded_rows = 3}, owner);
  p.materialize(kCpu);
  p.reset({.value = 2});
  const std::vector<nn::Parameter> parameters{p};
  assert_equal_across_ranks(t.group(), parameters);
  assert_equal_across_ranks(*mesh.group("replicate"), parameters);
  if (t.rank() == 3) fill_(p.local().tensor(), 0);
  t.check_throws<StateError>("\"up.weight\" (the elements of rank 3 are not those of rank 1)",
                             [&] { assert_equal_across_ranks(t.group(), parameters); });
  const auto in_line = [&] { assert_equal_across_ranks(*mesh.group("replicate"), parameters); };
  if (t.rank() % 2 == 0) {
    in_line();
  } else {
    t.check_throws<StateError>(
        "of group \"replicate[1,3]\": \"up.weight\" (the elements of rank 3 are not those of rank "
        "1)",
        in_line);
  }
}

}  // namespace tessera::testing
