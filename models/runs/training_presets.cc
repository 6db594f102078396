#include "tessera/models/runs/training_presets.h"

#include <iterator>

namespace tessera::models::runs {
namespace {

// The first matching row counts; an empty name matches all. The transformer's "small" trains in
// under five minutes on two cores; "tiny" is for tests.
constexpr TrainingPreset kPresets[] = {
    {.model = "moe",  // about three minutes
     .preset = "small",
     .steps = 700,
     .batch = 16,
     .lr = 1.5e-3,
     .min_lr = 1.5e-4,
     .warmup = 100},
    {.model = "",
     .preset = "small",
     .steps = 1200,
     .batch = 16,
     .lr = 1.5e-3,
     .min_lr = 1.5e-4,
     .warmup = 100},
    {.model = "",
     .preset = "tiny",
     .steps = 50,
     .batch = 6,
     .lr = 1e-2,
     .min_lr = 1e-3,
     .warmup = 5},
    {.model = "", .preset = ""},
};

bool fits(const char* pattern, const std::string& name) { return *pattern == 0 || name == pattern; }

}  // namespace

const TrainingPreset& training_preset(const std::string& model, const std::string& preset) {
  for (const TrainingPreset& row : kPresets)
    if (fits(row.model, model) && fits(row.preset, preset)) return row;
  return kPresets[std::size(kPresets) - 1];  // not reached: the last row matches all
}

}  // namespace tessera::models::runs
