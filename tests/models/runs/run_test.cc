// open_run on one device: the model, what is done with it, and folders that are refused.
#include "tessera/models/runs/run.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/gpt.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/models/runs/option_error.h"
#include "tessera/models/runs/text_data.h"
#include "tessera/models/training/image_task.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/models/runs/run_files.h"

namespace tessera::models {
namespace {

using Catch::Matchers::Contains;
using runs::OptionError;
using runs::TrainOptions;
using testing::fresh_folder;
using testing::tiny_net;
using testing::tiny_options;
using testing::write_file;

Variable some_tokens() {
  return Variable(
      Tensor::from_vector<std::int64_t>({72, 105, 256, 33, 0, 9, 200, 72, 1, 2}, {2, 5}));
}

TEST_CASE("a run of each language model opens with its weights") {
  for (const std::string model : {"transformer", "gpt", "llama", "moe"}) {
    CAPTURE(model);
    const std::string folder = fresh_folder("run");
    const TrainOptions options = tiny_options(model);
    testing::write_language_run(folder, options);
    const auto net = tiny_net(options);
    Run run = open_run(folder);
    CHECK(run.folder() == folder);
    CHECK(run.config().model == model);
    CHECK(run.config().seq_len == 9);
    CHECK(run.config().sizes == options.sizes);
    CHECK(run.tokenizer().vocab_size() == 257);
    CHECK(run.module().is_training());
    const NoGradGuard no_grad;
    const Variable tokens = some_tokens();
    const auto logits = [&](const LanguageModel& of) {
      return of.forward(tokens.tensor(), {}).logits.to_vector<double>();
    };
    CHECK(logits(run.language_model()) == logits(net->language_model()));
    const Variable hidden = run.hidden(tokens);
    CHECK(hidden.shape() == Shape{2, 5, static_cast<std::int64_t>(options.sizes.at("dim"))});
    CHECK(hidden.to_vector<double>() == net->hidden(tokens).to_vector<double>());
    const TextRequest request{.prompt = "Hi", .max_tokens = 12, .temperature = 1, .seed = 3};
    std::string pieces;
    const std::string text =
        run.generate(request, [&](const std::string& piece) { pieces += piece; });
    CHECK(text == runs::generate_text(net->language_model(), run.tokenizer(), request));
    CHECK(text == pieces);
    CHECK(run.module().is_training());
  }
}

TEST_CASE("model<> is the class of the run's model, and says which it is") {
  const std::string folder = fresh_folder("gpt run");
  testing::write_language_run(folder, tiny_options("gpt"));
  Run run = open_run(folder);
  CHECK(&static_cast<nn::Module&>(run.model<Gpt>()) == &run.module());
  CHECK_THROWS_WITH(run.model<Llama>(),
                    "[run.model] " + folder + " is a run of gpt, whose class is Gpt, not Llama");
  CHECK_THROWS_AS(run.model<MlpStack>(), StateError);
  Run moved = std::move(run);
  CHECK(moved.model<Gpt>().options().layers == 2);
}

// A new head on hidden(): its gradient reaches the model.
TEST_CASE("a head on the hidden states of a run trains the model too") {
  const std::string folder = fresh_folder("fine-tuned run");
  testing::write_language_run(folder, tiny_options("llama"));
  Run run = open_run(folder);
  const Variable hidden = run.hidden(some_tokens());
  nn::Linear head({.in = hidden.shape().back(), .out = 3, .dtype = DType::kF64});
  nn::initialize(head);
  backward(
      cross_entropy(head(select(hidden, 1, -1)), Tensor::from_vector<std::int64_t>({0, 2}, {2})));
  CHECK(head.weight().grad().defined());
  int with_gradient = 0;
  for (const nn::Parameter& parameter : run.module().parameters())
    with_gradient += parameter.grad().defined();
  CHECK(with_gradient > 10);
}

// The mean over all positions of all sequences, one sequence at a time.
double plain_loss(runs::LanguageNet& net, const data::PackedSequences& sequences) {
  const NoGradGuard no_grad;
  double sum = 0;
  for (std::int64_t i = 0; i < sequences.size(); ++i) {
    const auto [tokens, targets] = sequences.get(i);
    const Tensor row = tokens.view({1, sequences.length()});
    const std::vector<double> logits =
        net.language_model().forward(row, {}).logits.to_vector<double>();
    const std::vector<std::int64_t> wanted = targets.to_vector<std::int64_t>();
    for (std::size_t at = 0; at < wanted.size(); ++at) {
      double total = 0;
      for (std::size_t k = 0; k < 257; ++k) total += std::exp(logits[at * 257 + k]);
      sum += std::log(total) - logits[at * 257 + static_cast<std::size_t>(wanted[at])];
    }
  }
  return sum / static_cast<double>(sequences.size() * sequences.length());
}

TEST_CASE("evaluate: the loss of the validation text, or of another text") {
  const std::string folder = fresh_folder("evaluated run"), texts = fresh_folder("texts");
  write_file(texts + "/a.txt", testing::plain_text(4000));
  TrainOptions options = tiny_options("gpt");
  options.data = texts + "/a.txt";
  testing::write_language_run(folder, options);
  const auto net = tiny_net(options);
  Run run = open_run(folder);
  const runs::TextData text = runs::load_text(options.data, "bytes");
  const EvalMetrics found = run.evaluate();
  CHECK(found.loss ==
        Approx(plain_loss(*net, data::PackedSequences(text.text.validation, 9))).epsilon(1e-12));
  CHECK(found.bits_per_byte.value() == Approx(found.loss / std::log(2)).epsilon(1e-12));
  write_file(texts + "/b.txt", testing::plain_text(300, 2));
  const runs::TextData other = runs::load_text(texts + "/b.txt", "bytes");
  const data::PackedSequences whole(runs::whole_text(other.text), 9);
  for (const std::int64_t batch : {0, 1, 7})
    CHECK(run.evaluate({.data = texts + "/b.txt", .batch = batch}).loss ==
          Approx(plain_loss(*net, whole)).epsilon(1e-12));
  CHECK_THROWS_AS(run.evaluate({.data = texts + "/none.txt"}), DataError);
  CHECK_THROWS_WITH(run.evaluate(EvalData()),
                    "[run.evaluate] " + folder + " is a run of gpt: it needs sequences");
}

TEST_CASE("evaluate: a loss that is not finite names the first tensor") {
  const std::string folder = fresh_folder("diverged run"), texts = fresh_folder("its text");
  write_file(texts + "/a.txt", testing::plain_text(3000));
  TrainOptions options = tiny_options("gpt");
  options.data = texts + "/a.txt";
  testing::write_language_run(folder, options);
  Run run = open_run(folder);
  fill_(run.module().parameters().front().local().tensor(), NAN);
  CHECK_THROWS_WITH(run.evaluate(), Contains("[eval] the loss is nan: parameter ") &&
                                        Contains("the weights of " + folder + " cannot be used"));
}

TEST_CASE("a run of the mlp: logits, features, accuracy, and no text") {
  const std::string folder = fresh_folder("mlp run"), images = fresh_folder("images");
  testing::write_fashion_mnist(images);
  TrainOptions options = tiny_options("mlp");
  options.data = images;
  testing::write_mlp_run(folder, options);
  MlpStack plain(options.mlp());
  nn::initialize(plain, {.seed = options.seed});
  Run run = open_run(folder);
  CHECK(run.config().hidden == std::vector<std::int64_t>{7, 5});
  const NoGradGuard no_grad;
  const data::FashionMnist set = data::read_fashion_mnist(images);
  const std::vector<std::int64_t> first = {0, 1, 2};
  const ImageBatch batch = image_batch(set.test, first, {.dtype = DType::kF64});
  MlpStack& mlp = run.model<MlpStack>();
  const Variable logits = mlp(Variable(batch.pixels)),
                 features = run.hidden(Variable(batch.pixels));
  CHECK(logits.to_vector<double>() == plain(Variable(batch.pixels)).to_vector<double>());
  CHECK(features.shape() == Shape{3, 5});
  auto& head = dynamic_cast<nn::Linear&>(mlp.get_submodule("head"));
  CHECK(head(features).to_vector<double>() == logits.to_vector<double>());
  const EvalMetrics metrics = run.evaluate();
  CHECK(metrics.loss > 1);
  CHECK(metrics.loss < 4);
  CHECK(metrics.accuracy.has_value());
  std::vector<std::int64_t> rows;
  HookHandle counts =
      mlp.register_forward_pre_hook([&](nn::Module&, const nn::VisitVariables& arguments) {
        arguments([&](Variable& pixels) { rows.push_back(pixels.dim(0)); });
      });
  CHECK(run.evaluate({.batch = 7}).loss == Approx(metrics.loss).epsilon(1e-12));
  CHECK(rows == std::vector<std::int64_t>{7, 7, 7, 7, 2});
  rows.clear();
  run.evaluate();
  CHECK(rows == std::vector<std::int64_t>{30});
  counts.remove();
  CHECK_THROWS_AS(run.evaluate({.batch = -3}), InvalidArgument);
  CHECK_THROWS_WITH(run.evaluate({.batch = -3}),
                    "[run.evaluate] batch is -3; give the number of sequences or images at a time, "
                    "or 0 for that of training");
  const std::string refused = folder +
                              " is a run of mlp, which knows no text; open a run of "
                              "transformer, gpt, llama, moe";
  CHECK_THROWS_WITH(run.tokenizer(), "[run.tokenizer] " + refused);
  CHECK_THROWS_WITH(run.language_model(), "[run.language_model] " + refused);
  CHECK_THROWS_WITH(run.generate({}), "[run.generate] " + refused);
  CHECK_THROWS_WITH(run.evaluate(EvalData()),
                    "[run.evaluate] " + folder + " is a run of mlp: it needs images");
}

TEST_CASE("folders that hold no run that can be opened say what is wrong") {
  const std::string folder = fresh_folder("not a run"), config = folder + "/config.json";
  CHECK_THROWS_AS(open_run(folder + "/none"), OptionError);
  CHECK_THROWS_WITH(
      open_run(folder + "/none"),
      "[open_run] there is no folder " + folder + "/none; name one that tessera train --out made");
  CHECK_THROWS_WITH(open_run(folder), "[open_run] " + folder +
                                          " has no config.json, so it holds no run; name a folder "
                                          "that tessera train --out made");
  const std::string long_name = folder + "/" + std::string(300, 'x');
  CHECK_THROWS_AS(open_run(long_name), OptionError);
  CHECK_THROWS_WITH(open_run(long_name),
                    "[open_run] " + long_name +
                        " cannot be read: File name too long; name a folder that tessera train "
                        "--out made");
  std::filesystem::create_symlink("config.json", config);
  CHECK_THROWS_AS(open_run(folder), OptionError);
  CHECK_THROWS_WITH(open_run(folder),
                    Contains(config + " cannot be read: Too many levels of symb"));
  std::filesystem::remove(config);
  write_file(config, R"({"tessera": "9.0.0", "model": "gpt"})");
  CHECK_THROWS_WITH(open_run(folder),
                    "[open_run] " + config +
                        " is of tessera \"9.0.0\", this is 0.1.0; train again, or "
                        "use that version");
  write_file(config, R"({"tessera": "0.1.0", "model": "gtp"})");
  CHECK_THROWS_WITH(open_run(folder), "[open_run] " + config +
                                          " is of the model \"gtp\"; there are: transformer, gpt, "
                                          "llama, moe, mlp");
  write_file(config, "{");
  CHECK_THROWS_AS(open_run(folder), OptionError);
  CHECK_THROWS_WITH(open_run(folder), Contains("config.json is not JSON"));

  TrainOptions options = tiny_options("gpt");
  options.tokenizer = folder + "/learned.model";
  testing::write_language_run(folder, options);
  CHECK_THROWS_AS(open_run(folder), StateError);
  CHECK_THROWS_WITH(open_run(folder),
                    "[open_run] " + folder +
                        " has no tokenizer.model, with which the run was trained; "
                        "copy the whole folder");
  testing::write_language_run(folder, tiny_options("gpt"));
  std::filesystem::remove(folder + "/model.safetensors");
  CHECK_THROWS_AS(open_run(folder), StateError);
  CHECK_THROWS_WITH(open_run(folder),
                    "[open_run] " + folder +
                        " has no model.safetensors and no complete checkpoint: the run did not "
                        "end; train again");
}

TEST_CASE("weights that do not fit the configuration are named") {
  const std::string folder = fresh_folder("another model");
  const std::string advice =
      "the weights are damaged or of another run than config.json: take a "
      "copy of the folder, or train again";
  TrainOptions options = tiny_options("gpt");
  const auto refuses = [&](const std::string& text) {
    CHECK_THROWS_WITH(open_run(folder), Contains(text) && Contains(advice));
  };
  const std::string path = folder + "/model.safetensors";
  const auto save = [&](nn::Module& module) { nn::save_state(path, nn::state_dict(module)); };
  testing::write_language_run(folder, options);
  TrainOptions other = options;
  other.sizes["layers"] = 1;
  save(tiny_net(other)->module());
  refuses("model.safetensors lacks \"blocks.1.");
  other.sizes["layers"] = 3;
  save(tiny_net(other)->module());
  refuses("which the model of config.json does not have");
  other = options;
  other.sizes["dim"] *= 2;
  save(tiny_net(other)->module());
  refuses("shape");
  write_file(path, "damaged");
  CHECK_THROWS_AS(open_run(folder), CheckpointError);
  refuses("model.safetensors");
}

}  // namespace
}  // namespace tessera::models
