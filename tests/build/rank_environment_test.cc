// The environment that tessera_rank_test sets for its tests.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "(unset)" : value;
}

}  // namespace

TEST_CASE("a rank test knows its transport and its worlds") {
  const std::string transport = environment("TESSERA_TEST_TRANSPORT");
  CHECK((transport == "local" || transport == "gloo" || transport == "nccl"));
  const std::string target = environment("TEST_TARGET");
  CHECK(target.ends_with("_test_" + transport));
  CHECK(environment("TESSERA_TEST_WORLDS") == "1,2,3");  // 5 is more than the test's 3 ranks
#if defined(__SANITIZE_ADDRESS__)
  CHECK(environment("TESSERA_TEST_CONFIG") == "asan");
#elif defined(__SANITIZE_THREAD__)
  CHECK(environment("TESSERA_TEST_CONFIG") == "tsan");
#endif
  CHECK(environment("TESSERA_TEST_GPUS") ==
        (target.find("_gpu_") == std::string::npos ? "0" : "2"));
}
