#pragma once

// Tests on several ranks, written once and run on every transport and world size.
//
//     TESSERA_RANK_TEST("all_gather concatenates", "[collectives]") {
//       Tensor mine = full({3}, t.rank()), all = Tensor::empty({3 * t.size()});
//       distributed::all_gather(t.group(), std::vector{mine}, std::vector{all});
//       t.check(all.to_vector<float>()[0] == 0, "element 0 is {}", all.to_vector<float>()[0]);
//     }
//
// The body runs on every rank; `t` is a RankTest&. TESSERA_TEST_TRANSPORT (local: threads, gloo:
// processes, nccl: threads with a GPU each; default local) and TESSERA_TEST_WORLDS (default
// 1,2,3,5) choose transport and world sizes. TESSERA_TEST_ONLY_WORLDS, if set, leaves out all other
// sizes, also those that a case names itself (if none of these is listed, the smallest of several
// ranks runs). The
// macro tessera_rank_test sets them. Ranks must not use Catch's macros, which are not thread-safe:
// they check with `t`, and the main thread reports failures with rank and world. A failed check
// does not end the body. An exception that leaves the body fails the test with the text of the
// first failure.
//
// With processes, each rank is this test binary again, which runs only the bodies: state set up
// outside them does not exist there. One launch runs all cases of a world, in sequence and in the
// same World. A case that aborts its group, or examines the whole process, sets .own_launch = true.
// After a failed case, the remaining cases are launched again.

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tessera/distributed/launch/launch.h"
#include "tessera/tests/support/close.h"

namespace tessera::testing {

// The body's access to its rank. Used by the rank's thread only.
class RankTest {
 public:
  explicit RankTest(distributed::World& world) : world_(world) {}

  distributed::World& world() { return world_; }
  distributed::ProcessGroup& group() { return *world_.group(); }
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }

  // Records a failure with the text unless `ok`. Returns `ok`.
  template <class... Args>
  bool check(bool ok, fmt::format_string<Args...> text, Args&&... args) {
    if (!ok) fail(fmt::format(text, std::forward<Args>(args)...));
    return ok;
  }
  // Checks that the tensors are close (tolerances of close.h), or have equal bits.
  bool check_close(const Tensor& actual, const Tensor& expected, const std::string& what = {});
  bool check_close(const Tensor& actual, const Tensor& expected, Tolerance tolerance,
                   const std::string& what = {});
  bool check_equal(const Tensor& actual, const Tensor& expected, const std::string& what = {});
  // Checks that `call` throws an E whose text contains `part`.
  template <class E, class Call>
  bool check_throws(const std::string& part, Call&& call) {
    try {
      call();
    } catch (const E& error) {
      const std::string text = error.what();
      return check(text.find(part) != std::string::npos, "threw \"{}\", which lacks \"{}\"", text,
                   part);
    } catch (const std::exception& error) {
      return check(false, "threw another type than expected: {}", error.what());
    }
    return check(false, "threw nothing; expected a text with \"{}\"", part);
  }
  void fail(const std::string& text);
  // Until the end of the scope, failures begin with the name, to tell several cases apart. Scopes
  // nest.
  class NamedCase {
   public:
    NamedCase(RankTest& test, std::string name) : test_(test) {
      test_.names_.push_back(std::move(name));
    }
    ~NamedCase() { test_.names_.pop_back(); }
    NamedCase(const NamedCase&) = delete;
    NamedCase& operator=(const NamedCase&) = delete;

   private:
    RankTest& test_;
  };
  const std::vector<std::string>& failures() const { return failures_; }

  // Returns every rank's text, in rank order, on every rank. Collective.
  std::vector<std::string> gather_text(const std::string& mine);
  // Checks that all ranks pass the same text. Collective.
  bool check_same_on_all_ranks(const std::string& mine, const std::string& what);

 private:
  bool check_result(const CloseResult& result, const std::string& what);

  distributed::World& world_;
  std::vector<std::string> failures_;
  std::vector<std::string> names_;  // of the current scopes, the outermost first
};

struct RankTestOptions {
  std::vector<int> worlds{};                     // instead of TESSERA_TEST_WORLDS
  StreamKind cpu_compute = StreamKind::kInline;  // the stream of each rank's operations
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // Ranks compare their collectives first (distributed/checked.h). Unset: the value of
  // TESSERA_TEST_CHECKED, 1 by default.
  std::optional<bool> checked{};
  std::string expect_failure{};  // not empty: the run must fail with a text that contains this
  bool own_launch = false;       // with processes: the launch runs this case only
  std::string skip_with_nccl{};  // not empty: the reason why the case is skipped with NCCL
};

// A registered body; created by TESSERA_RANK_TEST during static initialisation.
class RankCase {
 public:
  RankCase(const char* name, void (*body)(RankTest&), RankTestOptions options = {});
};
// Runs a registered body in all worlds and asserts, on the main thread.
void run_rank_case(const std::string& name);

// "local", "gloo" or "nccl", and the world sizes, from the environment.
std::string test_transport();
std::vector<int> test_worlds();
// TESSERA_TEST_ONLY_WORLDS; empty: all.
std::vector<int> only_worlds();
// The world size of the tests that follow PyTorch's FSDP tests: 4 ranks, which share a GPU if they
// use one. With a GPU for each rank (NCCL), the number of GPUs, 8 at most.
int seeds_world();

// The launch options of rank tests from the environment: transport, device, GPUs. For tests that
// call launch themselves; `worlds` and `expect_failure` are not used.
distributed::LaunchOptions rank_launch_options(const RankTestOptions& options, int world);

// Lower level: runs `body` on rank threads, for any transport under test. Returns each rank's
// exception (null: none), in rank order. Does not assert.
struct RunRanksOptions {
  StreamKind cpu_compute = StreamKind::kInline;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};
std::vector<std::exception_ptr> run_ranks(int world_size,
                                          const std::function<void(distributed::World&)>& body,
                                          const RunRanksOptions& options = {});
// The texts of the exceptions, "" for none.
std::vector<std::string> exception_texts(const std::vector<std::exception_ptr>& errors);

}  // namespace tessera::testing

#define TESSERA_RANK_TEST(name, tags) TESSERA_RANK_TEST_WITH(name, tags, {})
// The same with RankTestOptions: TESSERA_RANK_TEST_WITH("x", "[y]", {.worlds = {2}}) { ... }
#define TESSERA_RANK_TEST_WITH(name, tags, ...) \
  TESSERA_RANK_TEST_NAMED(INTERNAL_CATCH_UNIQUE_NAME(tessera_rank_body_), name, tags, __VA_ARGS__)
#define TESSERA_RANK_TEST_NAMED(body, name, tags, ...) \
  TESSERA_RANK_TEST_EXPANDED(body, name, tags, __VA_ARGS__)
#define TESSERA_RANK_TEST_EXPANDED(body, name, tags, ...)            \
  static void body(::tessera::testing::RankTest& t);                 \
  static const ::tessera::testing::RankCase body##_case(             \
      name, &body, ::tessera::testing::RankTestOptions __VA_ARGS__); \
  TEST_CASE(name, tags) { ::tessera::testing::run_rank_case(name); } \
  static void body([[maybe_unused]] ::tessera::testing::RankTest& t)

namespace tessera::testing {

// The registered cases of TESSERA_RANK_TEST, and running one in one world: internal part of
// ranks.h.
struct RegisteredCase {
  void (*body)(RankTest&) = nullptr;
  RankTestOptions options;
};

// Keyed by name.
std::map<std::string, RegisteredCase>& rank_cases();

// The world sizes in which the case runs here.
std::vector<int> worlds_of(const RegisteredCase& test);

struct WorldRun {
  std::vector<std::string> failures;  // of checks, beginning with the rank
  std::string failure;                // of the run
};

// Runs the case on rank processes, together with other cases that can share the launch; their
// results are kept until they are requested.
WorldRun run_on_processes(const std::string& name, int world);

}  // namespace tessera::testing
