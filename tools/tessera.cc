// The program `tessera`. Exit codes: 0 done, 1 the run failed, 2 nothing was started, 130 and 143
// interrupted, 141 the reader of the output has gone.

#include <signal.h>
#include <unistd.h>

#include <exception>
#include <string>

#include "tessera/models/runs/option_error.h"
#include "tessera/tensor/io/failure_text.h"
#include "tessera/tools/program/command_line.h"
#include "tessera/tools/program/options/output.h"

namespace {

int report(int code, const std::string& message) {
  tessera::tools::print_failure(message);
  return code;
}

// By default, signals do not end the first process of a container.
void end_by_signals_as_first_process() {
  if (getpid() != 1) return;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    ::signal(signal, [](int received) { _exit(128 + received); });
}

}  // namespace

int main(int argc, char** argv) {
  tessera::tools::prepare_output();
  end_by_signals_as_first_process();
  try {
    return tessera::tools::run_command_line(argc, argv);
  } catch (const tessera::tools::OutputClosed&) {
    return tessera::tools::kOutputClosed;
  } catch (const tessera::tools::CannotStart& error) {
    return report(tessera::tools::kNotStarted, error.what());
  } catch (const tessera::models::runs::OptionError& error) {
    return report(tessera::tools::kNotStarted, error.what());
  } catch (const std::exception& error) {
    return report(tessera::tools::kRunFailed, tessera::failure_text(error));
  }
}
