#pragma once

/// `tessera doctor`: examines the machine, and says what will go wrong before a run does.

#include <string>

#include "tessera/models/runs/option_table.h"

namespace tessera::tools {

struct DoctorOptions {
  int ranks = 2;  ///< of the run that is to be started on this host
  std::string device = "cpu";
  std::string rdzv_endpoint;
  bool json = false;
};
void fill_table(models::runs::OptionTable& table, DoctorOptions& options);

/// Prints a line for each finding, or JSON. Returns kDone, or kRunFailed if there is a problem.
int examine_machine(const DoctorOptions& options);

}  // namespace tessera::tools
