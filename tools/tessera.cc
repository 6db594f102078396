// The program `tessera`. Exit codes: 0 done, 1 the run failed, 2 nothing was started.

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "tessera/tools/program/cannot_start.h"
#include "tessera/tools/program/command_line.h"

namespace {

int report(int code, const std::string& message) {
  fmt::print(stderr, "tessera: {}\n", message);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return tessera::tools::run_command_line(argc, argv);
  } catch (const tessera::tools::CannotStart& error) {
    return report(tessera::tools::kNotStarted, error.what());
  } catch (const std::exception& error) {
    return report(tessera::tools::kRunFailed, error.what());
  }
}
