// One rank's trace as Chrome events: phases of the host nest, whatever begins or ends outside of
// the trace; kernels and collectives carry their details; memory is counted.

#include "tessera/distributed/trace/trace_events.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tessera/distributed/trace/trace_event_writer.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {
namespace {

using nlohmann::json;

json events_of(const ExecutionTrace& trace, const TraceView& view = {.process = "rank 0 of 1"}) {
  return json::parse("[" + rank_events(trace, view).events + "]");
}

std::vector<json> select(const json& events, const std::string& key, const std::string& value) {
  std::vector<json> out;
  for (const json& event : events) {
    if (event.value(key, "") == value) out.push_back(event);
  }
  return out;
}

// "Bname" and "Ename" of the host's track, in order.
std::vector<std::string> host_slices(const json& events) {
  std::vector<std::string> out;
  for (const json& event : events) {
    const std::string phase = event["ph"];
    if (phase == "B" || phase == "E") out.push_back(phase + event["name"].get<std::string>());
  }
  return out;
}

void note(ExecutionTrace& trace, const char* domain, const char* name, const char* phase) {
  trace.add(TraceAnnotation{domain, name, phase});
}

TEST_CASE("trace events: phases nest, also without their beginning or end") {
  ExecutionTrace trace({.timed = true});
  note(trace, "module", "lost", "forward_end");
  note(trace, "module", "up", "forward");
  note(trace, "module", "up.act", "forward");
  note(trace, "module", "up", "forward_end");  // up.act threw, say
  note(trace, "module", "down", "forward");
  CHECK(host_slices(events_of(trace)) ==
        std::vector<std::string>{"Bup", "Bup.act", "Eup.act", "Eup", "Bdown", "Edown"});
}

TEST_CASE("trace events: backward's operations lie in the modules they were recorded in") {
  const auto root = make_scope_name();
  const auto block = make_scope_name();
  const auto up = make_scope_name();
  const auto down = make_scope_name();
  block->set("b", root);
  up->set("up", block);
  down->set("down", block);
  ExecutionTrace trace({.timed = true});
  const auto node = [&](const std::shared_ptr<ScopeName>& scope, const char* name) {
    const ScopeRestore in(scope);
    note(trace, "autograd", name, "node");
    note(trace, "autograd", name, "node_end");
  };
  note(trace, "autograd", "backward", "pass");
  node(nullptr, "mean");
  node(down, "linear");
  node(nullptr, "leaf");
  node(down, "cast");
  node(up, "gelu");
  note(trace, "autograd", "backward", "pass_end");
  CHECK(host_slices(events_of(trace)) ==
        std::vector<std::string>{"Bbackward", "Bmean", "Emean", "Bb backward", "Bb.down backward",
                                 "Blinear", "Elinear", "Bleaf", "Eleaf", "Bcast", "Ecast",
                                 "Eb.down backward", "Bb.up backward", "Bgelu", "Egelu",
                                 "Eb.up backward", "Eb backward", "Ebackward"});
}

TEST_CASE("trace events: a group is a span from unshard to reshard") {
  ExecutionTrace trace({.timed = true});
  for (const char* phase : {"reshard", "unshard", "reshard", "post_backward", "unshard"})
    note(trace, "fsdp", "blocks.0", phase);
  std::string phases;
  const json events = events_of(trace);
  for (const json& event : select(events, "name", "unsharded blocks.0"))
    phases += event["ph"].get<std::string>();
  CHECK(phases == "bebe");
  CHECK(select(events, "name", "reshard blocks.0").size() == 2);
}

TEST_CASE("trace events: a kernel and its memory, on the shifted clock") {
  const auto part = make_scope_name();
  part->set("up", make_scope_name());
  ExecutionTrace trace({.timed = true});
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kInline, "mine");
  TraceView view{.rank = 2, .process = "rank 2 of 3", .shift = -trace_clock() + 7'000};
  view.held = current_rank_context()->memory().current();
  {
    const StreamGuard guard(stream);
    const NamedScope scope(*part);
    const TraceScope recording(trace);
    const Tensor x = zeros({2, 3});
    neg(x);
  }
  const json events = events_of(trace, view);
  const std::vector<json> kernels = select(events, "cat", "kernel");
  REQUIRE(kernels.size() == 2);
  const json& kernel = kernels[1];
  CHECK(kernel["pid"] == 2);
  CHECK(kernel["ts"] >= 7.0);
  CHECK(kernel["ts"] < 60e6);
  CHECK(kernel["args"]["module"] == "up");
  CHECK(kernel["args"]["dtype"] == "f32");
  CHECK(kernel["args"]["shape"] == "[6]");  // as the kernel sees it: rows that touch are one
  CHECK(kernel["args"]["bytes"] == 48);
  CHECK(kernel["args"]["queued_us"] >= 0);
  CHECK(kernel["args"]["reads"] == kernels[0]["args"]["writes"]);
  std::int64_t peak = 0;
  for (const json& event : select(events, "name", "memory"))
    peak = std::max(peak, event["args"].value("activation", std::int64_t{0}));
  CHECK(peak == view.held[MemoryCategory::kActivation] + 128);
}

// Sleeps of a part on a stream of its own; the parts' names as slices around them.
TEST_CASE("trace events: work of a stream lies in slices of its modules") {
  const auto block = make_scope_name();
  const auto up = make_scope_name();
  const auto down = make_scope_name();
  block->set("b", make_scope_name());
  up->set("up", block);
  down->set("down", block);
  ExecutionTrace trace({.timed = true});
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "mine");
  {
    const TraceScope recording(trace);
    for (const auto& part : {up, up, down, block, std::shared_ptr<ScopeName>()}) {
      const ScopeRestore in(part);
      stream_sleep(stream, 0.1);
    }
    stream.synchronize();
  }
  const json events = events_of(trace);
  // Nanoseconds.
  const auto begin = [](const json& event) {
    return std::llround(1000 * event["ts"].get<double>());
  };
  const auto end = [&](const json& event) {
    return begin(event) + std::llround(1000 * event["dur"].get<double>());
  };
  std::map<std::string, std::vector<long long>> modules;
  for (const json& event : select(events, "cat", "module"))
    modules[event["name"]] = {begin(event), end(event)};
  const std::vector<json> sleeps = select(events, "name", "stream_sleep");
  REQUIRE(sleeps.size() == 5);
  CHECK(modules.size() == 3);
  CHECK(modules["b.up"] == std::vector{begin(sleeps[0]), end(sleeps[1])});
  CHECK(modules["b.down"] == std::vector{begin(sleeps[2]), end(sleeps[2])});
  CHECK(modules["b"] == std::vector{begin(sleeps[0]), end(sleeps[3])});
  std::vector<std::string> in_file;
  for (const json& event : select(events, "ph", "X")) {
    if (event["tid"] == sleeps[0]["tid"]) in_file.push_back(event["name"]);
  }
  const std::string sleep = "stream_sleep";
  CHECK(in_file ==
        std::vector<std::string>{"b", "b.up", sleep, sleep, "b.down", sleep, sleep, sleep});
}

TEST_CASE("trace events: names of any bytes make JSON") {
  ExecutionTrace trace({.timed = true});
  note(trace, "module", "a\"b\\\xff\n", "forward");
  note(trace, "module", "a\"b\\\xff\n", "forward_end");
  CHECK(host_slices(events_of(trace)).size() == 2);
}

TEST_CASE("trace events: an untimed trace is refused") {
  CHECK_THROWS_AS(rank_events(ExecutionTrace(), {}), InvalidArgument);
}

}  // namespace

namespace {

// Texts as JSON: what nlohmann's library writes, byte for byte, which it checks by another
// algorithm.
std::string expected_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Not Catch's macro for each: there are tens of thousands.
void check_text(const std::string& text) {
  if (json_text(text) != expected_text(text)) CHECK(json_text(text) == expected_text(text));
}

TEST_CASE("JSON text: every byte, alone and among others") {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    check_text(text);
    check_text("a" + text + "b" + text);
  }
  CHECK(json_text("") == "\"\"");
  CHECK(json_text("a \"b\" \\ /\x7f\x01\n") == "\"a \\\"b\\\" \\\\ /\x7f\\u0001\\n\"");
  CHECK(json_text("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") ==
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
  // Two of a character of three, then a byte that is none, then a surrogate.
  CHECK(json_text("\xe2\x82\xff\xed\xa0\x80") ==
        "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST_CASE("JSON text: every way to begin, break and end characters of UTF-8") {
  // Both ends of every range of table 3-7.
  const std::string bytes =
      "\n\"a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4"
      "\xf5\xff";
  // All that matters in a third and fourth byte.
  const std::string later = "a\x7f\x80\xbf\xc2\xff";
  for (const char a : bytes)
    for (const char b : bytes)
      for (const char c : later) {
        check_text({a, b, c});
        for (const char d : later) check_text({a, b, c, d});
      }
  std::string all;
  for (const char a : bytes)
    for (const char b : bytes) all += {a, b};
  check_text(all);
}

}  // namespace
}  // namespace tessera::distributed
