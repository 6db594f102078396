// Collectives of groups whose ranks share memory, or use TCP, or both, beside those of rank threads:
// the results are equal, bit for bit.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/transports/process_group_gloo.h"
#include "tessera/distributed/transports/process_group_local.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/support/temporary_folder.h"

namespace tessera::distributed {
namespace {

using Group = std::shared_ptr<ProcessGroup>;
using Floats = std::vector<float>;

constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(60);

// What every rank's body returns.
std::vector<Floats> on_ranks(int size, const std::function<Group(int rank)>& group_of,
                             const std::function<Floats(ProcessGroup&)>& body) {
  std::vector<Floats> results(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> errors(results.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const RankScope scope(std::make_shared<RankContext>(rank, size, 1));
      const auto r = static_cast<std::size_t>(rank);
      try {
        const Group group = group_of(rank);
        results[r] = body(*group);
        barrier(*group);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

Tensor values(int rank, std::int64_t count) {
  Floats numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(rank) * 11) % 101) / 7.0F;
  return Tensor::from_vector<float>(numbers, {count});
}

// Lists of a large and a small member, through every collective.
Floats all_collectives(ProcessGroup& group) {
  const int rank = group.rank(), size = group.size();
  Floats all;
  const auto keep = [&all](const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) {
      const Floats numbers = tensor.to_vector<float>();
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
  };
  const auto list = [&](std::int64_t times) {
    std::vector<Tensor> members;
    for (std::int64_t count : {70001, 1, 0, 333}) members.push_back(values(rank, count * times));
    return members;
  };
  std::vector<Tensor> parts = list(1), wholes = list(size);
  all_reduce(group, parts, ReduceOp::kAverage);
  all_gather(group, parts, wholes);
  keep(wholes);
  reduce_scatter(group, wholes, parts);
  keep(parts);
  broadcast(group, parts, size - 1);
  const std::vector<Tensor> rows = list(size);
  all_to_all(group, wholes, rows);
  keep(rows);
  reduce(group, parts, 0);
  gather(group, parts, rank == 0 ? wholes : std::vector<Tensor>{}, 0);
  scatter(group, rank == 0 ? wholes : std::vector<Tensor>{}, parts, 0);
  keep(parts);
  keep(wholes);
  const Tensor received = values(0, 5000);
  const PeerTensor to{(rank + 1) % size, values(rank, 5000)};
  const PeerTensor from{(rank + size - 1) % size, received};
  exchange(group, std::span(&to, 1), std::span(&from, 1));
  keep({received});
  return all;
}

}  // namespace

TEST_CASE("collectives have the same results whatever carries the messages", "[nodes]") {
  const int size = GENERATE(1, 2, 3, 4, 5);
  const int ranks_per_node = GENERATE(1, 2, 5);
  CAPTURE(size, ranks_per_node);
  std::vector<Group> local = make_local_groups("g", size, kTimeout);
  const auto expected = on_ranks(
      size, [&](int rank) { return std::move(local[static_cast<std::size_t>(rank)]); },
      all_collectives);
  const testing::TemporaryFolder folder;
  const auto found = on_ranks(
      size,
      [&](int rank) {
        return make_gloo_group("g", {.rank = rank,
                                     .size = size,
                                     .store = std::make_shared<FolderStore>(folder.path()),
                                     .node = std::to_string(rank / ranks_per_node),
                                     .timeout = kTimeout});
      },
      all_collectives);
  CHECK(found == expected);
}

}  // namespace tessera::distributed
