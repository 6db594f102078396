// Traces of several ranks on one clock: which steps are in the file, what its events say, how
// clocks of different hosts are brought together, and what is refused.
#include "tessera/distributed/trace/trace_session.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/trace/clock_offset.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using namespace distributed;
using nlohmann::json;

std::string path_of(RankTest& t, const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return fmt::format("{}/{}_{}.json", folder != nullptr ? folder : "/tmp", name, t.size());
}

json read_file(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

// The second line of a file: what is known of the whole, as it stands there.
std::string about_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::getline(file, line);
  return line;
}

// A gather on a stream of its own, and work of the current stream that waits for it.
void step(RankTest& t, const DeviceStream& gather, std::int64_t number) {
  const Tensor mine = full({3}, t.rank());
  const Tensor all = Tensor::empty({3 * t.size()});
  gather.wait(current_stream(kCpu).record("made"));
  DeviceEvent gathered("gathered");
  {
    const StreamGuard guard(gather);
    all_gather(t.group(), std::vector{mine}, std::vector{all}, fmt::format("layer {}", number));
    gathered.record(gather);
  }
  current_stream(kCpu).wait(gathered);
  const float total = sum(all).item<float>();
  t.check(total == 1.5F * static_cast<float>(t.size() * (t.size() - 1)), "sum {}", total);
}

void run_steps(RankTest& t, TraceSession& session, std::int64_t steps) {
  const DeviceStream gather = DeviceStream::create(kCpu, StreamKind::kQueued, "gather");
  for (std::int64_t i = 0; i < steps; ++i) {
    session.begin_step(i);
    step(t, gather, i);
  }
  session.end();
}

std::vector<json> select(const json& file, const std::string& key, const std::string& value) {
  std::vector<json> out;
  for (const json& event : file["traceEvents"]) {
    if (event.value(key, "") == value) out.push_back(event);
  }
  return out;
}

// Of each rank: the chosen steps and no other, with their gathers.
void check_steps(RankTest& t, const json& file) {
  std::map<int, std::vector<std::string>> steps, labels;
  std::map<int, std::set<int>> sequences;
  for (const json& event : select(file, "cat", "trace"))
    steps[event["pid"]].push_back(event["name"]);
  int barriers = 0;
  for (const json& event : select(file, "cat", "collective")) {
    if (event["ph"] != "X") continue;
    const json& args = event["args"];
    if (args["op"] == "barrier") ++barriers;
    if (args["op"] != "all_gather") continue;
    labels[event["pid"]].push_back(args["label"]);
    sequences[event["pid"]].insert(args["sequence"].get<int>());
    t.check(args["bytes"] == 12 * t.size(), "bytes {}", args["bytes"].dump());
    t.check(args["dtype"] == "f32" && args["group"] == t.group().name(), "args {}", args.dump());
    t.check(args["ranks"].size() == static_cast<std::size_t>(t.size()), "ranks {}", args.dump());
  }
  t.check(barriers == 16 * t.size(), "{} barriers", barriers);
  for (int rank = 0; rank < t.size(); ++rank) {
    t.check(steps[rank] == std::vector<std::string>{"step 1", "step 2"}, "steps of rank {}", rank);
    t.check(labels[rank] == std::vector<std::string>{"layer 1", "layer 2"}, "labels of rank {}",
            rank);
    t.check(sequences[rank] == sequences[0], "sequence numbers of rank {}", rank);
  }
}

// Every gather is one arrow through all ranks; the wait for it is one on each rank.
void check_arrows(RankTest& t, const json& file) {
  std::map<std::int64_t, std::string> arrows;
  for (const json& event : select(file, "cat", "collective")) {
    if (event["ph"] != "X") arrows[event["id"]] += event["ph"].get<std::string>();
  }
  const std::string passes(static_cast<std::size_t>(std::max(t.size() - 2, 0)), 't');
  t.check(arrows.size() == (t.size() > 1 ? 18U : 0U), "{} arrows", arrows.size());
  for (const auto& [id, ends] : arrows) t.check(ends == "s" + passes + "f", "arrow {}", ends);
  // "made" to the gather where that had to wait, "gathered" to the sum always: on an inline stream
  // to the wait or the sum itself.
  const std::vector<json> of_events = select(file, "cat", "event");
  t.check(of_events.size() >= static_cast<std::size_t>(4 * t.size()), "{} ends of events' arrows",
          of_events.size());
}

void check_tracks(RankTest& t, const json& file, StreamKind kind) {
  std::set<std::string> tracks, processes;
  for (const json& event : select(file, "name", "thread_name"))
    tracks.insert(event["args"]["name"].get<std::string>());
  for (const json& event : select(file, "name", "process_name"))
    processes.insert(event["args"]["name"].get<std::string>());
  t.check(tracks.contains("gather") && tracks.contains("host"), "tracks {}", json(tracks).dump());
  // host, gather, and the stream that computes
  t.check(tracks.size() == 3, "{} computes on {}",
          kind == StreamKind::kInline ? "inline" : "queued", json(tracks).dump());
  for (int rank = 0; rank < t.size(); ++rank)
    t.check(processes.contains(fmt::format("rank {} of {}", rank, t.size())), "rank {}", rank);
  const json& about = file["otherData"];
  t.check(about["ranks"] == t.size() && about["first_step"] == 1 && about["last_step"] == 2, "{}",
          about.dump());
  for (const json& offset : about["clock_offset_ns"])
    t.check(offset == 0, "an offset of {} ns on one host", offset.dump());
  for (const json& dropped : about["dropped"]) t.check(dropped == 0, "dropped");
}

void check_written(RankTest& t, StreamKind kind) {
  const std::string path = path_of(t, kind == StreamKind::kInline ? "inline" : "queued");
  TraceSession session(t.world(), {.path = path, .first_step = 1, .steps = 2});
  run_steps(t, session, 5);
  t.check(session.is_written() && !session.is_tracing(), "written");
  t.check(t.world().context()->trace() == nullptr, "the trace has ended");
  if (t.rank() != 0) return;
  const json file = read_file(path);
  check_steps(t, file);
  check_arrows(t, file);
  check_tracks(t, file, kind);
}

TESSERA_RANK_TEST("the chosen steps of all ranks, with inline compute", "[trace]") {
  check_written(t, StreamKind::kInline);
}
TESSERA_RANK_TEST_WITH("the chosen steps of all ranks, with queued compute", "[trace]",
                       {.cpu_compute = StreamKind::kQueued}) {
  check_written(t, StreamKind::kQueued);
}

TESSERA_RANK_TEST("a run that ends early writes what there is, or nothing", "[trace]") {
  const std::string path = path_of(t, "early");
  std::filesystem::remove(path);
  barrier(t.group());
  {
    TraceSession session(t.world(), {.path = path, .first_step = 10});
    run_steps(t, session, 2);
    t.check(!session.is_written() && !std::filesystem::exists(path), "nothing to write");
  }
  TraceSession session(t.world(), {.path = path, .first_step = 1, .steps = 10});
  run_steps(t, session, 2);
  session.end();  // a second time: nothing
  if (t.rank() != 0) return;
  const json about = read_file(path)["otherData"];
  t.check(about["first_step"] == 1 && about["last_step"] == 1, "{}", about.dump());
  // Its keys stand in their order, without blanks.
  const std::vector<int> zero(static_cast<std::size_t>(t.size()), 0);
  const std::string zeros = fmt::format("{}", fmt::join(zero, ","));
  const std::string line = about_line(path);
  const std::string begin = fmt::format(
      R"("otherData":{{"format":"tessera trace 1","ranks":{},"first_step":1,"last_step":1,)"
      R"("dropped":[{}],"clock_offset_ns":[{}],"clock_uncertainty_ns":[)",
      t.size(), zeros, zeros);
  t.check(line.starts_with(begin) && line.ends_with("]},"), "{}", line);
}

TESSERA_RANK_TEST("a session that is left in the middle stops tracing", "[trace]") {
  {
    TraceSession session(t.world(), {.path = path_of(t, "left"), .first_step = 0});
    session.begin_step(0);
    t.check(session.is_tracing() && t.world().context()->trace() != nullptr, "tracing");
  }
  t.check(t.world().context()->trace() == nullptr, "stopped");
  t.check(!std::filesystem::exists(path_of(t, "left")), "no file");
}

TESSERA_RANK_TEST("a trace that is full says what it left out", "[trace]") {
  const std::string path = path_of(t, "full");
  TraceSession session(t.world(), {.path = path, .first_step = 0, .steps = 1, .max_records = 40});
  run_steps(t, session, 2);
  if (t.rank() != 0) return;
  const json about = read_file(path)["otherData"];
  t.check(about["dropped"].size() == static_cast<std::size_t>(t.size()), "{}", about.dump());
  for (const json& dropped : about["dropped"]) t.check(dropped > 0, "dropped {}", dropped.dump());
}

TESSERA_RANK_TEST("what a session refuses", "[trace]") {
  const auto refuses = [&](const std::string& part, const TraceSessionOptions& options) {
    t.check_throws<InvalidArgument>(part, [&] { TraceSession session(t.world(), options); });
  };
  refuses("no path", {.path = ""});
  refuses("from step -1", {.path = "x", .first_step = -1});
  refuses("0 steps", {.path = "x", .steps = 0});
  refuses("max_records is 0", {.path = "x", .max_records = 0});

  ExecutionTrace other;
  {
    const TraceScope recording(other);
    t.check_throws<StateError>("writes another trace", [&] {
      TraceSession session(t.world(), {.path = "x", .first_step = 0});
      session.begin_step(0);
    });
  }

  TraceSession session(t.world(), {.path = "/nonexistent/trace.json", .first_step = 0, .steps = 1});
  session.begin_step(0);
  t.check_throws<CheckpointError>("/nonexistent/trace.json", [&] { session.end(); });
  session.begin_step(1);
  t.check(!session.is_tracing() && !session.is_written(), "a session traces once");
}

// As if each rank were on a host that was started at another time.
TESSERA_RANK_TEST("clocks that differ are brought together, equal ones left alone", "[trace]") {
  const std::int64_t ahead = t.rank() * std::int64_t{5'000'000'000};
  const ClockOffset apart =
      measure_clock_offset(t.group(), [ahead] { return trace_clock() + ahead; });
  t.check(std::abs(apart.nanoseconds + ahead) <= apart.uncertainty, "offset {} +- {}",
          apart.nanoseconds, apart.uncertainty);
  t.check(apart.uncertainty < 1'000'000'000, "uncertainty {}", apart.uncertainty);
  const ClockOffset same = measure_clock_offset(t.group(), trace_clock);
  t.check(same.nanoseconds == 0, "offset {} +- {}", same.nanoseconds, same.uncertainty);
}

}  // namespace
}  // namespace tessera::testing
