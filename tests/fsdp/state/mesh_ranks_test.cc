// MeshRanks: the first rank's data is sent over all axes of a mesh, to each rank once.
#include "tessera/fsdp/state/whole_values.h"

#include <catch2/catch.hpp>

#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/state/state_model.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;
using fsdp::MeshRanks;

// As many texts as the rank number, so lists have different lengths: none on rank 0.
std::vector<std::string> texts_of(int rank) {
  std::vector<std::string> out;
  for (int i = 0; i < rank; ++i) {
    out.push_back(std::string(static_cast<std::size_t>(i), '\xff') + std::to_string(rank));
  }
  return out;
}

TESSERA_RANK_TEST_WITH("MeshRanks sends to each rank once, over any number of axes", "[fsdp][sync]",
                       {.worlds = {1, 2, 6, 8}}) {
  const auto check = [&](const DeviceMesh& mesh) {
    const MeshRanks ranks(mesh);
    t.check(ranks.is_first() == (t.rank() == 0), "rank {} is first", t.rank());
    const Tensor x = full({3}, t.rank() + 1);
    const auto before = distributed::collective_counters();
    ranks.broadcast(std::span(&x, 1), "test");
    const auto after = distributed::collective_counters();
    t.check_equal(x, full({3}, 1), "broadcast");
    // 12 bytes to each other rank, whichever rank forwards them.
    std::int64_t sum = 0;
    for (const std::string& text :
         t.gather_text(std::to_string(after.bytes_sent - before.bytes_sent))) {
      sum += std::stoll(text);
    }
    t.check(sum == 12 * (t.size() - 1), "{} bytes sent over {}", sum, mesh.str());
    t.check(ranks.broadcast_texts(texts_of(t.rank() + 5)) == texts_of(5), "texts");
    t.check(ranks.broadcast_texts(texts_of(t.rank())).empty(), "no texts");
    const std::vector<std::vector<std::string>> all = ranks.all_gather_texts(texts_of(t.rank()));
    t.check(all.size() == static_cast<std::size_t>(t.size()), "{} lists", all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      t.check(all[i] == texts_of(static_cast<int>(i)), "list {} has {} texts", i, all[i].size());
  };
  check(t.world().mesh());
  if (t.size() % 2 != 0) return;
  check(distributed::hybrid_mesh(t.world(), t.size() / 2));
  check(DeviceMesh({"a", "b", "c"}, {2, 1, t.size() / 2}, t.world().group(), t.world().device()));
}

TESSERA_RANK_TEST_WITH("MeshRanks along some axes, and alone", "[fsdp][sync]", {.worlds = {6}}) {
  const DeviceMesh mesh({"a", "b"}, {2, 3}, t.world().group(), t.world().device());
  const MeshRanks lines(mesh, {"b"});
  const Tensor x = full({1}, t.rank());
  lines.broadcast(std::span(&x, 1), "test");
  t.check(x.item<float>() == static_cast<float>(t.rank() / 3 * 3), "got {}", x.item<float>());
  t.check(lines.is_first() == (t.rank() % 3 == 0), "rank {} is first", t.rank());
  const MeshRanks alone({});
  t.check(alone.is_first() && alone.broadcast_texts(texts_of(t.rank())) == texts_of(t.rank()) &&
              alone.all_gather_texts(texts_of(t.rank())) ==
                  std::vector<std::vector<std::string>>{texts_of(t.rank())},
          "alone it is not alone");
}

TESSERA_RANK_TEST_WITH("the widest mesh is that of the parameter over most ranks", "[fsdp][sync]",
                       {.worlds = {4}}) {
  const DeviceMesh mesh = distributed::hybrid_mesh(t.world(), 2);
  StateNet net;
  t.check(!fsdp::widest_mesh(net.parameters()).defined(), "nobody sharded it");
  fsdp::fully_shard(net.head(), {.mesh = mesh["shard"]});
  t.check(fsdp::widest_mesh(net.parameters()) == mesh["shard"], "one axis");
  fsdp::fully_shard(net.inner(), {.mesh = mesh});
  t.check(fsdp::widest_mesh(net.parameters()) == mesh, "both axes");
}

}  // namespace
}  // namespace tessera::testing
