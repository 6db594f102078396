#include "tessera/tools/program/options/preset_list.h"

#include <fmt/format.h>

#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/runs/language_family.h"
#include "tessera/tools/program/options/texts.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

struct Counts {
  std::int64_t parameters = 0;  ///< elements, on all ranks
  std::int64_t per_rank = 0;    ///< of the rank with most: ceil(rows / ranks) rows of each
};

Counts count(const nn::Module& module, int ranks) {
  Counts counts;
  for (const nn::Parameter& parameter : module.parameters()) {
    const Shape& shape = parameter.spec().global_shape;
    counts.parameters += shape.numel();
    counts.per_rank += shape.numel() / shape[0] * ((shape[0] + ranks - 1) / ranks);
  }
  return counts;
}

std::string row(const std::string& model, const std::string& preset, const std::string& description,
                const Counts& counts, const ListOptions& options) {
  const bool adamw = model != "mlp";
  const DType storage = models::precision_named(options.precision).storage;
  const auto bytes =
      static_cast<double>(counts.per_rank) * static_cast<double>(dtype_size(storage));
  const double state = adamw ? 2 * bytes : bytes;
  return fmt::format("{:<12} {:<16} {:>12} {:>12} {:>12} {:>12} {:>12}  {}\n", model, preset,
                     short_count(static_cast<double>(counts.parameters)), short_bytes(bytes),
                     short_bytes(bytes), short_bytes(state), short_bytes(2 * bytes + state),
                     description);
}

std::string mlp_rows(const ListOptions& options) {
  std::string text;
  for (const models::MlpPreset& preset : models::mlp_presets()) {
    const models::MlpStack model({.hidden = preset.hidden, .activation = preset.activation});
    text += row("mlp", preset.name, fmt::format("layers {}", fmt::join(preset.hidden, "-")),
                count(model, options.ranks), options);
  }
  return text;
}

std::string language_rows(const LanguageFamily& family, const ListOptions& options) {
  std::string text;
  for (const std::string& preset : family.presets()) {
    const auto net = family.build({.preset = preset});
    text += row(family.name(), preset, family.description_of(preset),
                count(net->module(), options.ranks), options);
  }
  return text;
}

}  // namespace

void fill_table(OptionTable& table, ListOptions& options) {
  table.group("Presets");
  table.flag("list", options.list,
             "print the presets with their parameters, and the bytes that a rank needs for them");
  table.whole("ranks", options.ranks, {.least = 1, .most = 1024},
              "with --list: ranks that share each parameter");
  table.choice("precision", options.precision, models::precision_names(),
               "with --list: what they are stored for");
}

std::string preset_list(const ListOptions& options) {
  std::string text =
      fmt::format("{:<12} {:<16} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "model", "preset",
                  "parameters", "weights", "gradients", "optimizer", "together");
  text += mlp_rows(options);
  for (const std::string& name : language_family_names())
    text += language_rows(language_family(name), options);
  const models::Precision precision = models::precision_named(options.precision);
  text += fmt::format(
      "\nBytes of one of {} ranks with --shard full and --precision {}: weights, gradients and the "
      "optimizer's\nstate (AdamW two values for each weight, SGD of mlp one) are stored in {}. The "
      "vocabulary is the preset's\nown. Not counted: activations, and the whole weights of the "
      "block that is being computed, in {}.\n",
      options.ranks, options.precision, dtype_name(precision.storage),
      dtype_name(precision.compute));
  return text;
}

}  // namespace tessera::tools
