// Meshes as every rank of a world sees them, without the other ranks: coordinates, sub-meshes,
// flattening, which groups are made, errors.
#include "tessera/distributed/mesh/device_mesh.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <unordered_set>

#include "tessera/distributed/mesh/mesh_layout.h"
#include "tessera/tensor/error.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Ranks = std::vector<int>;
using RankLists = std::vector<std::vector<int>>;
using Names = std::vector<std::string>;

// One rank without peers. Sub-groups are counted.
class LonelyGroup final : public ProcessGroup {
 public:
  LonelyGroup(Identity identity, std::shared_ptr<int> made)
      : ProcessGroup(std::move(identity)), made_(std::move(made)) {}
  std::string backend() const override { return "lonely"; }
  void run(const Collective&) override {}
  void abort(const std::string&) noexcept override {}
  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    ++*made_;
    return std::make_shared<LonelyGroup>(request.identity, made_);
  }
  int made() const { return *made_; }

 private:
  std::shared_ptr<int> made_;
};

std::shared_ptr<LonelyGroup> lonely(const Ranks& ranks, int place) {
  return std::make_shared<LonelyGroup>(
      ProcessGroup::Identity{.name = "world", .rank = place, .ranks = ranks},
      std::make_shared<int>(0));
}
std::shared_ptr<LonelyGroup> lonely_world(int size, int rank) {
  Ranks ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return lonely(ranks, rank);
}

DeviceMesh cube(int rank, const Names& axes = {"dp", "pp", "tp"}) {
  return {axes, {2, 2, 2}, lonely_world(8, rank), kCpu};
}

TEST_CASE("two axes: lines and their groups") {
  for (int rank = 0; rank < 4; ++rank) {
    const DeviceMesh mesh({"dp", "tp"}, {2, 2}, lonely_world(4, rank), kCpu);
    CHECK(mesh.ndim() == 2);
    CHECK(mesh.axes() == Names{"dp", "tp"});
    CHECK(mesh.shape() == Ranks{2, 2});
    CHECK(mesh.size() == 4);
    CHECK(mesh.size("tp") == 2);
    CHECK(mesh.rank() == rank);
    CHECK(mesh.ranks() == Ranks{0, 1, 2, 3});
    CHECK(mesh.device() == kCpu);
    CHECK(mesh.group("dp")->ranks() == (rank % 2 == 0 ? Ranks{0, 2} : Ranks{1, 3}));
    CHECK(mesh.group("tp")->ranks() == (rank < 2 ? Ranks{0, 1} : Ranks{2, 3}));
    CHECK(mesh.ranks_along("dp") == mesh.group("dp")->ranks());
    CHECK(mesh.ranks_along("tp") == mesh.group("tp")->ranks());
    CHECK(mesh.group("dp")->rank() == mesh.coordinate("dp"));
    CHECK(mesh.groups() == std::vector{mesh.group("dp"), mesh.group("tp")});
    CHECK(mesh.all_ranks_along({"dp"}) == RankLists{{0, 2}, {1, 3}});
    CHECK(mesh.all_ranks_along({"tp"}) == RankLists{{0, 1}, {2, 3}});
    CHECK(mesh.all_ranks_along({"dp", "tp"}) == RankLists{{0, 1, 2, 3}});
  }
  CHECK(DeviceMesh({"dp", "tp"}, {2, 2}, lonely_world(4, 1), kCpu).group("dp")->name() ==
        "dp[1,3]");
}

TEST_CASE("three axes: coordinates of every rank, own and asked for") {
  for (int rank = 0; rank < 8; ++rank) {
    const DeviceMesh mesh = cube(rank);
    CHECK(mesh.coordinate("tp") == rank % 2);
    CHECK(mesh.coordinate("pp") == (rank % 4) / 2);
    CHECK(mesh.coordinate("dp") == rank / 4);
    CHECK(mesh.coordinates() == Ranks{rank / 4, (rank % 4) / 2, rank % 2});
    for (int other = 0; other < 8; ++other)
      CHECK(mesh.coordinates_of(other) == Ranks{other / 4, (other % 4) / 2, other % 2});
    CHECK(mesh.coordinates_of(8) == std::nullopt);
    CHECK(mesh.coordinates_of(-1) == std::nullopt);
    CHECK(mesh.flatten().coordinate("dp_pp_tp") == rank);
  }
}

TEST_CASE("a mesh over some ranks of the world speaks of their numbers there") {
  const DeviceMesh mesh({"dp", "tp"}, {2, 2}, lonely({9, 3, 5, 7}, 2), kCpu);
  CHECK(mesh.rank() == 5);
  CHECK(mesh.coordinates() == Ranks{1, 0});
  CHECK(mesh.group("dp")->ranks() == Ranks{9, 5});
  CHECK(mesh.group("dp")->rank() == 1);
  CHECK(mesh.all_ranks_along({"tp"}) == RankLists{{9, 3}, {5, 7}});
  CHECK(mesh.coordinates_of(3) == Ranks{0, 1});
  CHECK(mesh.coordinates_of(0) == std::nullopt);
}

TEST_CASE("sub-meshes by one name and by several") {
  const Names axes{"replicate", "shard", "tp"};
  const DeviceMesh mesh = cube(0, axes);
  CHECK(mesh.all_ranks_along({"tp"}) == RankLists{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(mesh.all_ranks_along({"shard"}) == RankLists{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(mesh.all_ranks_along({"replicate"}) == RankLists{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  for (int rank = 0; rank < 8; ++rank) {
    const DeviceMesh whole = cube(rank, axes);
    CHECK(whole["tp"].ranks() == Ranks{rank - rank % 2, rank - rank % 2 + 1});
    CHECK(whole["replicate"].ranks() == Ranks{rank % 4, rank % 4 + 4});
    const DeviceMesh hybrid = whole.submesh({"replicate", "shard"});
    CHECK(hybrid.ranks() == Ranks{rank % 2, rank % 2 + 2, rank % 2 + 4, rank % 2 + 6});
    CHECK(hybrid.shape() == Ranks{2, 2});
    CHECK(hybrid.coordinates() == Ranks{rank / 4, (rank % 4) / 2});
    CHECK(hybrid["shard"] == whole["shard"]);
    CHECK(hybrid["shard"].group() == whole.group("shard"));
    CHECK(hybrid.coordinates_of(1 - rank % 2) == std::nullopt);
  }
  const DeviceMesh apart = mesh.submesh({"replicate", "tp"});  // the axis between is left out
  CHECK(apart.ranks() == Ranks{0, 1, 4, 5});
  CHECK(apart.all_ranks_along({"tp"}) == RankLists{{0, 1}, {4, 5}});
  CHECK(mesh.submesh(axes) == mesh);
  CHECK(mesh.submesh(axes).root() == mesh);
}

TEST_CASE("sub-meshes have their root's groups and root, and equal ones are one") {
  const auto group = lonely_world(8, 5);
  const DeviceMesh mesh({"dp", "pp", "tp"}, {2, 2, 2}, group, kCpu);
  CHECK(group->made() == 3);
  const DeviceMesh tp = mesh["tp"];
  const DeviceMesh pair = mesh.submesh({"dp", "tp"});
  CHECK(tp.group() == mesh.group("tp"));
  CHECK(pair["tp"].group() == mesh.group("tp"));
  CHECK(pair.groups() == std::vector{mesh.group("dp"), mesh.group("tp")});
  CHECK(group->made() == 3);
  CHECK(tp.root() == mesh);
  CHECK(pair["dp"].root() == mesh);
  CHECK(mesh.root() == mesh);
  // One mesh: what is noted of one handle is seen through the other.
  const auto note = std::make_shared<const int>(1);
  tp.companion() = note;
  CHECK(pair["tp"].companion().lock() == note);
  CHECK(mesh.companion().lock() == nullptr);
  mesh.root().companion() = note;
  CHECK(mesh.companion().lock() == note);
}

TEST_CASE("a line of all ranks is the group itself") {
  const auto group = lonely_world(4, 2);
  const DeviceMesh one("data", group, kCpu);
  CHECK(one.group() == group);
  const DeviceMesh flat({"replicate", "shard"}, {1, 4}, group, kCpu);
  CHECK(flat.group("shard") == group);
  CHECK(flat.group("replicate")->ranks() == Ranks{2});
  CHECK(flat.flatten().group() == group);
  CHECK(group->made() == 1);
}

TEST_CASE("flattening: names, lines, and groups made once") {
  const auto group = lonely_world(8, 6);
  const DeviceMesh mesh({"dp", "cp", "tp"}, {2, 2, 2}, group, kCpu);
  const DeviceMesh dp_cp = mesh.submesh({"dp", "cp"}).flatten();
  CHECK(group->made() == 4);
  CHECK(dp_cp.axes() == Names{"dp_cp"});
  CHECK(dp_cp.ranks() == Ranks{0, 2, 4, 6});
  CHECK(dp_cp.group()->ranks() == Ranks{0, 2, 4, 6});
  CHECK(dp_cp.coordinate("dp_cp") == 3);
  CHECK(dp_cp.root() == mesh);
  CHECK(mesh.submesh({"dp", "cp"}).flatten() == dp_cp);
  CHECK(mesh.submesh({"dp", "cp"}).flatten("dp_cp").group() == dp_cp.group());
  CHECK(mesh["dp_cp"].group() == dp_cp.group());
  CHECK(mesh.submesh({"dp", "cp"}).flatten("data").group() == dp_cp.group());
  CHECK(mesh["data"].axes() == Names{"data"});
  CHECK(group->made() == 4);
  // Axes that are not neighbours.
  const DeviceMesh dp_tp = mesh.submesh({"dp", "tp"}).flatten("outer");
  CHECK(dp_tp.ranks() == Ranks{2, 3, 6, 7});
  CHECK(group->made() == 5);
  // All of them, which is the world.
  CHECK(mesh.flatten().group() == group);
  CHECK(mesh.flatten().ranks() == mesh.ranks());
  // One axis is itself, or has another name.
  CHECK(mesh["tp"].flatten() == mesh["tp"]);
  CHECK(mesh["tp"].flatten("model").group() == mesh.group("tp"));
  CHECK(group->made() == 5);
  // Beside axes that it does not join.
  const DeviceMesh beside = mesh.submesh({"dp_cp", "tp"});
  CHECK(beside.shape() == Ranks{4, 2});
  CHECK(beside.ranks() == mesh.ranks());
  CHECK(beside.coordinates() == Ranks{3, 0});
  CHECK(beside.flatten("everything").group() == group);
}

TEST_CASE("a flattened axis has ranks along it, as its sub-mesh does") {
  const DeviceMesh mesh = cube(5);
  mesh.submesh({"dp", "tp"}).flatten("shard");
  CHECK(mesh.all_ranks_along({"shard"}) == mesh.all_ranks_along({"dp", "tp"}));
  CHECK(mesh.all_ranks_along({"shard"}) == RankLists{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(mesh.ranks_along("shard") == mesh["shard"].ranks());
  CHECK(mesh.ranks_along("shard") == Ranks{0, 1, 4, 5});
  mesh.submesh({"pp", "tp"}).flatten("inner");
  CHECK(mesh.all_ranks_along({"dp", "inner"}) == RankLists{{0, 1, 2, 3, 4, 5, 6, 7}});
  // Of a part that has only some of the joined axes, and not of axes that overlap.
  CHECK_THROWS_WITH(mesh.submesh({"dp", "pp"}).all_ranks_along({"shard"}),
                    Contains("axis \"shard\" is not of this mesh, which has: dp, pp"));
  CHECK_THROWS_WITH(mesh.all_ranks_along({"dp", "shard"}), Contains("overlap"));
  CHECK_THROWS_WITH(mesh.ranks_along("ep"), Contains("no axis \"ep\"; the mesh has: dp, pp, tp"));
}

TEST_CASE("a flattened axis beside the outer one") {
  const DeviceMesh mesh = cube(1, {"replicate", "shard", "cp"});
  mesh.submesh({"shard", "cp"}).flatten("shard_cp");
  const DeviceMesh hybrid = mesh.submesh({"replicate", "shard_cp"});
  CHECK(hybrid.shape() == Ranks{2, 4});
  CHECK(hybrid.all_ranks_along({"shard_cp"}) == RankLists{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(hybrid.group("shard_cp")->ranks() == Ranks{0, 1, 2, 3});
  CHECK(hybrid["shard_cp"].root() == mesh);
}

TEST_CASE("concatenating sub-meshes of one root") {
  const DeviceMesh mesh = cube(3);
  CHECK(DeviceMesh::concatenate({mesh["dp"], mesh["tp"]}) == mesh.submesh({"dp", "tp"}));
  CHECK(DeviceMesh::concatenate({mesh.submesh({"dp", "pp"}), mesh["tp"]}) == mesh);
  CHECK_THROWS_WITH(DeviceMesh::concatenate({}), Contains("at least one mesh"));
  CHECK_THROWS_WITH(DeviceMesh::concatenate({mesh["tp"], mesh["dp"]}),
                    Contains("axes tp, dp are not in the mesh's order"));
  CHECK_THROWS_WITH(DeviceMesh::concatenate({mesh["dp"], cube(3)["tp"]}),
                    Contains("sub-meshes of one root"));
}

TEST_CASE("equality and hash: axes, shape, ranks and kind of device") {
  const auto make = [](const Names& axes, const std::vector<int>& shape) {
    return DeviceMesh(axes, shape, lonely_world(4, 0), kCpu);
  };
  const DeviceMesh mesh = make({"dp", "tp"}, {2, 2});
  CHECK(mesh == make({"dp", "tp"}, {2, 2}));
  CHECK(mesh.hash() == make({"dp", "tp"}, {2, 2}).hash());
  CHECK(mesh != make({"dp", "ep"}, {2, 2}));
  CHECK(mesh != make({"dp", "tp"}, {1, 4}));
  CHECK(mesh.hash() != make({"dp", "ep"}, {2, 2}).hash());
  CHECK(mesh.hash() != make({"dp", "tp"}, {1, 4}).hash());
  CHECK(mesh != DeviceMesh({"dp", "tp"}, {2, 2}, lonely({4, 5, 6, 7}, 0), kCpu));
  CHECK(mesh != DeviceMesh({"dp", "tp"}, {2, 2}, lonely_world(4, 0), kNull));
  // A child is what a mesh of its own over the same ranks is, by the same name.
  const DeviceMesh child = mesh["tp"];
  CHECK(child == DeviceMesh("tp", lonely({0, 1}, 0), kCpu));
  CHECK(child.hash() == DeviceMesh("tp", lonely({0, 1}, 0), kCpu).hash());
  CHECK(child != DeviceMesh("ep", lonely({0, 1}, 0), kCpu));
  CHECK(child != mesh["dp"]);
  CHECK(DeviceMesh() == DeviceMesh());
  CHECK(DeviceMesh() != mesh);
  CHECK(mesh != DeviceMesh());
  const std::unordered_set<DeviceMesh> set{mesh, make({"dp", "tp"}, {2, 2}), child, DeviceMesh()};
  CHECK(set.size() == 3);
}

TEST_CASE("a mesh as text") {
  CHECK(DeviceMesh({"dp", "tp"}, {2, 2}, lonely_world(4, 0), kCpu).str() ==
        "dp 2, tp 2 over ranks 0,1,2,3 on cpu");
  CHECK(cube(0).submesh({"dp", "pp"}).str() == "dp 2, pp 2 over ranks 0,2,4,6 on cpu");
  CHECK(cube(0).str() == "dp 2, pp 2, tp 2 over ranks 0,1..7 on cpu");
  CHECK(DeviceMesh().str() == "undefined mesh");
  CHECK(ranks_text({0, 2, 4, 6, 8}) == "0,2..8");
  CHECK(ranks_text({0, 2, 4, 6, 9}) == "0,2,4,6,9");
  CHECK(ranks_text({}) == "");
}

TEST_CASE("from groups that exist") {
  const auto world = lonely_world(8, 5);
  const auto replicate = world->subgroup({1, 5}), shard = world->subgroup({4, 5, 6, 7});
  const DeviceMesh mesh = DeviceMesh::from_groups({.axes = {"replicate", "shard"},
                                                   .shape = {2, 4},
                                                   .ranks = {0, 1, 2, 3, 4, 5, 6, 7},
                                                   .groups = {replicate, shard}},
                                                  kCpu);
  CHECK(world->made() == 2);
  CHECK(mesh.coordinates() == Ranks{1, 1});
  CHECK(mesh.group("shard") == shard);
  CHECK(mesh["replicate"].group() == replicate);
  CHECK(mesh["replicate"].ranks() == Ranks{1, 5});
  CHECK(mesh == DeviceMesh({"replicate", "shard"}, {2, 4}, world, kCpu));
  CHECK_THROWS_WITH(
      mesh.flatten(),
      Contains(
          "axis \"replicate_shard\" needs a new group, which a mesh made from groups cannot make"));
  CHECK(mesh["shard"].flatten("s").group() == shard);
  const DeviceMesh one = DeviceMesh::from_groups(
      {.axes = {"data"}, .shape = {4}, .ranks = {4, 5, 6, 7}, .groups = {shard}}, kCpu);
  CHECK(one == DeviceMesh("data", shard, kCpu));
}

TEST_CASE("groups that are not the mesh's lines are refused") {
  const auto world = lonely_world(4, 1);
  const auto rows = world->subgroup({0, 1}), columns = world->subgroup({1, 3});
  const auto make = [&](std::vector<int> shape, Ranks ranks,
                        std::vector<std::shared_ptr<ProcessGroup>> groups) {
    return DeviceMesh::from_groups(
        {.axes = {"dp", "tp"}, .shape = shape, .ranks = ranks, .groups = groups}, kCpu);
  };
  CHECK_NOTHROW(make({2, 2}, {0, 1, 2, 3}, {columns, rows}));
  CHECK_THROWS_WITH(make({2, 2}, {0, 1, 2, 3}, {columns}),
                    Contains("1 process groups for 2 axes (dp, tp)"));
  CHECK_THROWS_WITH(make({2, 2}, {0, 1, 2, 3}, {columns, nullptr}),
                    Contains("axis \"tp\" needs a process group"));
  CHECK_THROWS_WITH(make({2, 2}, {0, 1, 2, 3}, {rows, columns}),
                    Contains("along axis \"dp\" rank 1 stands among ranks [1,3] of the mesh, but "
                             "group \"world[0,1]\" has [0,1]"));
  CHECK_THROWS_WITH(make({1, 2}, {2, 3}, {columns, rows}),
                    Contains("stands among ranks [] of the mesh"));
  CHECK_THROWS_WITH(make({2, 3}, {0, 1, 2, 3}, {columns, rows}),
                    Contains("a mesh of shape [2, 3] has 6 ranks, but there are 4"));
  CHECK_THROWS_WITH(make({2, 2}, {0, 1, 1, 3}, {columns, rows}),
                    Contains("a rank stands twice among 0, 1, 1, 3"));
}

TEST_CASE("axes and sizes that make no mesh are refused") {
  const auto make = [](const Names& axes, const std::vector<int>& shape) {
    return DeviceMesh(axes, shape, lonely_world(4, 0), kCpu);
  };
  CHECK_THROWS_WITH(make({}, {}), Contains("a mesh needs at least one axis"));
  CHECK_THROWS_WITH(make({"dp", "dp"}, {2, 2}),
                    Contains("axis name \"dp\" stands twice in: dp, dp"));
  CHECK_THROWS_WITH(make({"dp", ""}, {2, 2}), Contains("a name that is not empty"));
  CHECK_THROWS_WITH(make({"dp"}, {2, 2}), Contains("1 axis names (dp) for 2 sizes (2, 2)"));
  CHECK_THROWS_WITH(make({"dp", "tp"}, {2, 3}),
                    Contains("a mesh of shape [2, 3] has 6 ranks, but there are 4"));
  CHECK_THROWS_WITH(make({"dp", "tp"}, {4, 0}), Contains("sizes are at least 1, got [4, 0]"));
  CHECK_THROWS_WITH(make({"dp", "tp"}, {-2, -2}), Contains("sizes are at least 1, got [-2, -2]"));
  CHECK_THROWS_WITH(DeviceMesh({"dp"}, {4}, nullptr, kCpu),
                    Contains("a mesh of axes dp needs a process group"));
}

TEST_CASE("a device that the group does not carry is refused") {
  const auto group = lonely_world(4, 0);
  const std::string text = "group \"world\" over lonely carries no tensors of device ";
  CHECK_THROWS_WITH(DeviceMesh("data", group, {DeviceType::kCuda, 1}), Contains(text + "cuda:1"));
  CHECK_THROWS_WITH(DeviceMesh({"dp", "tp"}, {2, 2}, group, {DeviceType::kCuda, 0}),
                    Contains(text + "cuda:0"));
  CHECK_THROWS_WITH(DeviceMesh("data", group, {static_cast<DeviceType>(77), 0}),
                    Contains(text + "?"));
  CHECK(DeviceMesh("data", group, kNull).device() == kNull);
}

TEST_CASE("sub-meshes that cannot be are refused") {
  const DeviceMesh mesh = cube(0);
  CHECK_THROWS_WITH(mesh["ep"], Contains("no axis \"ep\"; the mesh has: dp, pp, tp"));
  CHECK_THROWS_WITH(mesh.submesh({}),
                    Contains("a sub-mesh needs at least one axis; the mesh has: dp, pp, tp"));
  CHECK_THROWS_WITH(
      mesh.submesh({"tp", "dp"}),
      Contains("axes tp, dp are not in the mesh's order, or overlap; the order is: dp, pp, tp"));
  CHECK_THROWS_WITH(mesh.submesh({"dp", "dp"}), Contains("each once"));
  CHECK_THROWS_WITH(mesh.all_ranks_along({"pp", "dp"}),
                    Contains("axes pp, dp are not in the mesh's order"));
  const DeviceMesh pair = mesh.submesh({"dp", "pp"});
  CHECK_THROWS_WITH(pair["tp"], Contains("axis \"tp\" is not of this mesh, which has: dp, pp"));
  CHECK_THROWS_WITH(pair.size("tp"), Contains("no axis \"tp\"; the mesh has: dp, pp"));
  mesh.submesh({"dp", "tp"}).flatten();
  CHECK_THROWS_WITH(mesh.submesh({"dp_tp", "pp"}),
                    Contains("are not in the mesh's order, or overlap"));
  CHECK_THROWS_WITH(mesh.submesh({"dp", "dp_tp"}), Contains("overlap"));
  CHECK_THROWS_WITH(pair["dp_tp"], Contains("axis \"dp_tp\" is not of this mesh"));
}

TEST_CASE("what needs a name, and names that are taken") {
  const DeviceMesh mesh = cube(0);
  CHECK_THROWS_WITH(mesh.group(),
                    Contains("a mesh of 3 axes has a group along each: name one of: dp, pp, tp"));
  CHECK_THROWS_WITH(mesh.submesh({"dp", "pp"}).flatten("tp"),
                    Contains("axes dp, pp cannot be flattened to \"tp\": the root mesh (dp 2, pp "
                             "2, tp 2 over ranks 0,1..7 on cpu)"));
  mesh.submesh({"dp", "pp"}).flatten("data");
  CHECK_THROWS_WITH(mesh.submesh({"dp", "tp"}).flatten("data"),
                    Contains("has another axis of that name"));
}

TEST_CASE("another group on one axis") {
  const DeviceMesh mesh = cube(0);
  mesh.submesh({"dp", "pp"}).flatten("data");
  const auto other = lonely({0, 1}, 0);
  const DeviceMesh changed = mesh.with_group("tp", other);
  CHECK(changed.group("tp") == other);
  CHECK(changed.group("dp") == mesh.group("dp"));
  CHECK(changed["tp"].group() == other);
  CHECK(changed == mesh);
  CHECK(mesh.group("tp") != other);
  CHECK(mesh["tp"].with_group("tp", other).root().group("tp") == other);
  const auto four = lonely({0, 2, 4, 6}, 0);
  CHECK(mesh["data"].with_group("data", four).group() == four);
  const auto note = std::make_shared<const int>(1);
  mesh.companion() = note;
  CHECK(mesh.with_group("tp", other).companion().lock() == nullptr);
  CHECK_THROWS_WITH(
      mesh.with_group("tp", four),
      Contains("axis \"tp\" is of size 2 and this is its rank 0; the group has 4 and 0"));
}

TEST_CASE("an undefined mesh is refused everywhere") {
  const DeviceMesh none;
  CHECK_FALSE(none.defined());
  CHECK_THROWS_WITH(none.shape(), Contains("the mesh is undefined"));
  CHECK_THROWS_WITH(none["dp"], Contains("the mesh is undefined"));
  CHECK_THROWS_WITH(none.submesh({}), Contains("the mesh is undefined"));
  CHECK_THROWS_WITH(none.flatten(), Contains("the mesh is undefined"));
  CHECK_THROWS_WITH(none.root(), Contains("the mesh is undefined"));
  CHECK_THROWS_WITH(none.group(), Contains("the mesh is undefined"));
  CHECK_THROWS_WITH(DeviceMesh::concatenate({none}), Contains("the mesh is undefined"));
  CHECK(none.hash() == DeviceMesh().hash());
}

TEST_CASE("a rank outside a layout") {
  const MeshLayout layout({"dp", "tp"}, {2, 2}, {4, 5, 6, 7});
  CHECK_THROWS_WITH(layout.part(layout.axes(), 1),
                    Contains("rank 1 is not in the mesh, which has 4,5,6,7"));
  const MeshLayout row = layout.part({layout.axis("tp")}, 6);
  CHECK(row.ranks() == Ranks{6, 7});
  CHECK_THROWS_WITH(row.part({row.axis("tp")}, 4),
                    Contains("rank 4 is not in the mesh, which has 6,7"));
}

}  // namespace
}  // namespace tessera::distributed
