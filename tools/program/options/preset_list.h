#pragma once

/// `tessera train --list`: the presets of all models, and the memory that each needs.

#include <string>

#include "tessera/models/runs/option_table.h"

namespace tessera::tools {

struct ListOptions {
  bool list = false;
  int ranks = 2;
  std::string precision = "f32";
};
void fill_table(models::runs::OptionTable& table, ListOptions& options);

/// The table as text. Counts are computed from shapes; nothing is allocated.
std::string preset_list(const ListOptions& options);

}  // namespace tessera::tools
