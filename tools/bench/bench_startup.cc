// How long a run takes to start and end, by its number of rank processes on this host:
//
//     tools/bazel run //tools/bench:bench_startup
//
// "launch" is a whole run, which connects its ranks, passes one barrier and ends. "connect" is a
// part of it: ranks that are threads of one process find each other in a store that is reached by
// TCP, as on several hosts, and connect each with every other. Of the runs of each size, in turns,
// the fastest and the median are printed, and the processor time of all ranks in the one that took
// least of it, also for each rank. If that does not grow, the time is at most proportional to the
// ranks; other work on the machine affects it less than the time. Other numbers of ranks are
// arguments.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/store/tcp_store.h"
#include "tessera/distributed/transports/process_group_gloo.h"
#include "tessera/tools/bench/bench_timing.h"

namespace tessera {
namespace {

constexpr int kRounds = 5;

struct Times {
  std::vector<double> took;       // milliseconds
  std::vector<double> processor;  // milliseconds, of all ranks
};
using TimesBySize = std::map<int, Times>;

// Milliseconds that this process has used, or its processes that have ended.
double processor_time(int whose) {
  rusage used = {};
  getrusage(whose, &used);
  const auto ms = [](const timeval& time) {
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_usec);
  };
  return ms(used.ru_utime) + ms(used.ru_stime);
}

template <class Body>
void measure(Times& times, int whose, const Body& body) {
  const double before = processor_time(whose);
  times.took.push_back(1e-3 * microseconds(body));
  times.processor.push_back(processor_time(whose) - before);
}

std::string rank_name(int rank) { return fmt::format("rank {}", rank); }

void connect(int size) {
  using namespace distributed;
  const Credentials credentials{.secret = make_secret()};
  std::vector<std::string> names;
  for (int rank = 0; rank < size; ++rank) names.push_back(rank_name(rank));
  const TcpStoreServer server(
      {.at = {.host = "127.0.0.1"}, .expected = names, .credentials = credentials});
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto store = std::make_shared<TcpStore>(TcpStore::Options{
          .at = server.endpoint(), .name = rank_name(rank), .credentials = credentials});
      make_gloo_group("bench",
                      {.rank = rank, .size = size, .store = store, .credentials = credentials});
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

double least(const std::vector<double>& all) { return *std::min_element(all.begin(), all.end()); }

void print(const char* what, const TimesBySize& times) {
  for (const auto& [size, all] : times) {
    const double processor = least(all.processor);
    fmt::print(
        "{:8} {:3} ranks: {:7.1f} ms, median {:7.1f} ms, processor {:7.1f} ms, {:5.1f} ms a "
        "rank\n",
        what, size, least(all.took), median(all.took), processor, processor / size);
  }
}

int run(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::max(1, std::atoi(argv[i])));
  if (sizes.empty()) sizes = {2, 4, 8, 16, 32};
  TimesBySize launches, connects;
  for (int round = 0; round < kRounds; ++round) {
    for (const int size : sizes) {
      distributed::LaunchResult result;
      measure(launches[size], RUSAGE_CHILDREN, [&] {
        result = distributed::launch(argc, argv, {.ranks = size},
                                     [](distributed::World& world) { barrier(*world.group()); });
      });
      if (result.exit_code != 0) {
        fmt::print(stderr, "{}\n", result.failure);
        return result.exit_code;
      }
      if (distributed::is_rank_process()) continue;
      measure(connects[size], RUSAGE_SELF, [&] { connect(size); });
    }
  }
  print("launch", launches);
  print("connect", connects);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
