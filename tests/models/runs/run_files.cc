#include "tessera/tests/models/runs/run_files.h"

#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/watch/run_files.h"
#include "tessera/nn/init.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tests/models/data/test_data.h"

namespace tessera::testing {
namespace {

using models::runs::TrainOptions;

constexpr std::int64_t kVocabulary = 257;  // of bytes

void write_run(const std::string& folder, const TrainOptions& options, nn::Module& module) {
  write_file(folder + "/" + models::kConfigFile, models::runs::config_text(options));
  nn::save_state(folder + "/" + models::kModelFile, nn::state_dict(module));
}

}  // namespace

TrainOptions tiny_options(const std::string& model) {
  TrainOptions options = models::runs::default_options(model);
  options.precision = "f64";
  options.tokenizer = "bytes";
  options.batch = 3;
  if (model == models::runs::kMlp) {
    options.hidden = {7, 5};
    return options;
  }
  options.preset = "tiny";
  options.sizes = models::runs::language_family(model).sizes_of("tiny");
  options.sizes["layers"] = 2;
  options.seq_len = 9;
  options.dropout = 0;
  return options;
}

std::unique_ptr<models::runs::LanguageNet> tiny_net(const TrainOptions& options) {
  auto net = models::runs::build_net(options, kVocabulary);
  nn::initialize(net->module(), {.seed = options.seed});
  return net;
}

void write_language_run(const std::string& folder, const TrainOptions& options) {
  write_run(folder, options, tiny_net(options)->module());
}

void write_mlp_run(const std::string& folder, const TrainOptions& options) {
  models::MlpStack mlp(options.mlp());
  nn::initialize(mlp, {.seed = options.seed});
  write_run(folder, options, mlp);
}

}  // namespace tessera::testing
