#pragma once

/// Opens a model that `tessera train --out` left, to generate, evaluate, fine-tune or read hidden
/// states.
///
///     models::Run run = models::open_run("runs/first");
///     run.generate({.prompt = "Once", .max_tokens = 50});          // a text
///     run.evaluate();                                              // its validation loss
///     run.hidden(tokens);                                          // [batch, length, dim]
///     models::Gpt& gpt = run.model<models::Gpt>();                 // the model itself
///     nn::optim::AdamW optimizer(gpt.parameters(), {.lr = run.config().lr});
///
/// With a World the weights are loaded into shards, a part on each rank:
///
///     models::Run run = models::open_run(world, "runs/first", {.shard = "full"});
///
/// The words are those of the program: run.config().seq_len is "seq_len" in config.json and --seq-len
/// of `tessera train`; `prompt`, `top_k`, `data` and `batch` are options of `tessera generate` and
/// `tessera eval`, which call these functions.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>

#include "tessera/autograd/variable.h"
#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/fashion_mnist.h"
#include "tessera/models/data/packed_sequences.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/models/runs/text_request.h"
#include "tessera/models/runs/train_options.h"
#include "tessera/models/training/metrics.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/device.h"

namespace tessera::models {

/// How the ranks of a world share the model: options of `tessera train`, with the same names.
struct ShardedRunOptions {
  std::string shard = "full";  ///< full, grad, replicate, hybrid
  std::string mesh = {};       ///< "4", "2x2"; empty: all ranks
  int tensor_parallel = 1;     ///< ranks that share every layer
};

/// What a model is evaluated on, and how.
struct EvalRequest {
  std::string data = {};  ///< empty: the run's own validation text, or test images
  /// Sequences or images at a time, over all ranks; 0: as many as while the run was trained.
  std::int64_t batch = 0;
};

/// Data that was read for Run::evaluate. Immutable: ranks that are threads may share it.
struct EvalData {
  std::shared_ptr<const data::PackedSequences> sequences;  ///< of a language model
  std::shared_ptr<const data::FashionMnist> images;        ///< of the mlp
};

/// A model with the weights of a run, its tokenizer and the options it was trained with. The model
/// is in training mode, as every new one: call module().eval() unless you train it. Movable; used by
/// the thread that opened it. All its functions are collective if the model is sharded.
class Run {
 public:
  Run(Run&&) noexcept;
  Run& operator=(Run&&) noexcept;
  ~Run();

  const std::string& folder() const;
  /// The options of the run: config.json, with a member for each key.
  const runs::TrainOptions& config() const;

  /// Owned by the run.
  nn::Module& module();
  /// The same as the class that it is: MlpStack, Transformer, Gpt, Llama or MixtureOfExperts. Throws
  /// StateError, naming the run's model, if it is another one.
  template <class Model>
  Model& model() {
    if (auto* const model = dynamic_cast<Model*>(&module())) return *model;
    throw_other_model(typeid(Model));
  }

  // Of language models. For the mlp they throw StateError.

  const data::Tokenizer& tokenizer() const;
  /// Valid as long as the run.
  LanguageModel language_model();
  /// Returns the text after the prompt. `on_text` gets each piece, which may end in the middle of a
  /// character. In evaluation mode, without gradients. Throws as models::generate (generate.h), and
  /// DataError for a prompt that is not UTF-8.
  std::string generate(const TextRequest& request = {},
                       const std::function<void(const std::string&)>& on_text = {});

  // Of every model.

  /// What the model's head computes logits from: of tokens [batch, length] the hidden states [batch,
  /// length, dim], norm included; of the mlp's pixels [rows, 784] the features [rows, hidden.back()].
  /// With gradients, unless they are off, so that a new head and the model can be trained. Throws the
  /// errors of the model's forward.
  Variable hidden(const Variable& inputs);

  /// Returns loss and bits per byte of a language model, loss and accuracy of the mlp. Throws
  /// DataError for data that cannot be read, StateError if the loss is not finite, naming the first
  /// tensor that is not, and InvalidArgument for a negative batch; on all ranks if on any.
  EvalMetrics evaluate(const EvalRequest& request = {});
  /// The same with data that was read before; `batch` as in EvalRequest.
  EvalMetrics evaluate(const EvalData& data, std::int64_t batch = 0);

 private:
  struct State;
  friend class RunOpener;
  explicit Run(std::unique_ptr<State> state);
  [[noreturn]] void throw_other_model(const std::type_info& wanted);

  std::unique_ptr<State> state_;
};

/// Opens the run with its complete weights on one device, without ranks. A run in bf16 or f16 has
/// its weights in f32, and computes in f32 too: only sharded models compute in 16 bits.
///
/// `folder` is that of a run, or one of its checkpoints, "runs/first/checkpoints/step-500". A run that has not
/// ended has the weights of its newest complete checkpoint.
///
/// Throws runs::OptionError, an InvalidArgument, for a folder that does not exist or holds no run, a
/// run of another version of Tessera, and a config.json that is damaged; StateError for a run that
/// did not end and has no checkpoint, and for a missing tokenizer; CheckpointError and
/// InvalidArgument for weights that are damaged or do not fit the config.json, naming them.
Run open_run(const std::string& folder, Device device = default_device());

/// Opens the run with its weights sharded over the ranks, on their devices, in the dtypes of its
/// --precision. Each host has the folder. Rank 0 reads the whole file of weights into its host memory,
/// and frees it before this returns; the other ranks hold no more than their part and one full tensor.
/// Collective. The world outlives the run. Throws on all ranks what open_run(folder) throws on one of
/// them; also OptionError for options that are invalid or do not fit the world.
Run open_run(distributed::World& world, const std::string& folder,
             const ShardedRunOptions& options = {});

/// The options of the run, after the checks of open_run that need no weights.
runs::TrainOptions read_run_config(const std::string& folder);

/// Reads `data`, or what the run itself was evaluated on if it is empty. Throws the errors of
/// read_run_config, and DataError for data that cannot be read or is shorter than one sequence.
EvalData read_eval_data(const std::string& folder, const std::string& data = "");

}  // namespace tessera::models
