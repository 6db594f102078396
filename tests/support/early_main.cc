#include "tessera/tests/support/early_main.h"

#include <vector>

namespace tessera::testing {
namespace {

std::vector<EarlyMain>& registered() {
  static std::vector<EarlyMain> list;
  return list;
}

}  // namespace

EarlyMainRegistration::EarlyMainRegistration(EarlyMain early_main) {
  registered().push_back(early_main);
}

int run_early_mains(int argc, char** argv) {
  for (EarlyMain early_main : registered()) {
    if (const int answer = early_main(argc, argv); answer >= 0) return answer;
  }
  return -1;
}

}  // namespace tessera::testing
