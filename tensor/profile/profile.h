#pragma once

/// Where the time of a step goes: calls, time, bytes and FLOPs by operation and by module, like the
/// table of torch.profiler's key_averages().
///
///     Profile profile;
///     for (int step = 0; step < 5; ++step) {
///       const Profile::Scope measured(profile);
///       train_step();
///     }
///     std::puts(profile.table().c_str());
///
/// It reads the timed trace (tensor/trace.h) of each step. Nothing is recorded in any other way, and
/// a program that makes no profile pays nothing. While a step is measured, each operation costs the
/// host some 200 ns more (tensor/README.md has figures). The records of the last step are held in
/// memory, about 1 KiB each, until figures are asked for.
///
/// Threads. Every row belongs to one thread: "host", the thread of the rank, with the work of inline
/// streams and all its waits; or a queued stream, by its name. On each thread the self times of its
/// rows add up to the time of the steps, to the nanosecond: what is not spent in operations,
/// collectives or waits is the row "outside of operations" of the host, and "idle" of a stream.
///
/// A step lasts until stop(), and longer if work that it issued to queued streams ends later:
/// stop() waits for that.
///
/// GPUs and the null device. A timed trace has no times of work on them, and neither has a profile:
/// such work has calls, bytes and FLOPs, counts as untimed, and takes no time of any thread. The
/// time in which the host issues it is part of "outside of operations"; the host's waits for a GPU
/// are rows. A step ends when the host's part ends.
///
/// One profile for each rank, used by the rank's thread. Errors are StateError.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// The part of a step that a piece of work was issued in.
enum class ProfilePhase : std::uint8_t {
  kForward,    ///< from the first call of a module to the backward pass, the loss included
  kRecompute,  ///< forward that runs again in backward
  kBackward,
  kOptimizer,
  kOther,  ///< before the first module, and behind backward: data, clipping, metrics
};
inline constexpr std::size_t kProfilePhases = 5;
/// "forward", "recompute", "backward", "optimizer", "other".
const char* profile_phase_name(ProfilePhase phase);

enum class ProfileKind : std::uint8_t {
  kOperation,
  kCollective,
  kWait,     ///< of the host or a stream, for an event, for a stream, or for the end of the step
  kOutside,  ///< the rest of a thread's time
};

/// Sums over all measured steps.
struct ProfileFigures {
  std::int64_t calls = 0;          ///< of operations and collectives; of waits, those that waited
  std::int64_t untimed_calls = 0;  ///< of them, those whose work has no times
  std::int64_t total_ns = 0;       ///< from begin to end
  std::int64_t self_ns = 0;        ///< without work that ran inside on the same thread
  /// Of the operands and results, each once, as the trace lists them: an element that a broadcast
  /// repeats counts once, and a result that is also read counts as written.
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t bytes_sent = 0;  ///< by collectives of this rank
  /// 2 for each multiplication and addition of matrix products, convolutions and attention; see
  /// KernelRecord.
  std::int64_t flops = 0;

  ProfileFigures& operator+=(const ProfileFigures& other);
};

struct ProfileRow {
  std::string thread;  ///< "host", a stream's name, or kUntimedThread
  /// The operation ("matmul", "gelu"), the collective ("all_gather"), "wait for <event>",
  /// "synchronize <stream>", "outside of operations" or "idle".
  std::string name;
  ProfileKind kind = ProfileKind::kOperation;
  ProfilePhase phase = ProfilePhase::kOther;
  /// The path, "blocks.3.up". Of a collective: the module that its label names ("blocks.3" of a
  /// parameter group), if there is one, else the module that issued it.
  std::string module;
  ProfileFigures figures;
};

/// The thread of work without times.
inline constexpr const char* kUntimedThread = "not timed";
/// The rank's own thread.
inline constexpr const char* kHostThread = "host";
/// The module without a name, which contains the others.
inline constexpr const char* kRootModule = "(root)";
/// Work that no module issued, and all rows that are outside of operations.
inline constexpr const char* kNoModule = "(no module)";

/// The work and the waits of a module on all threads together, which may run at the same time. Its
/// time is self_ns.
struct ProfileModule {
  std::string path;        ///< or kRootModule, kNoModule
  std::int64_t calls = 0;  ///< of its forward, over all steps; without those of recompute
  /// By phase, indexed by ProfilePhase: of the module alone, and with the modules inside.
  std::array<ProfileFigures, kProfilePhases> own{};
  std::array<ProfileFigures, kProfilePhases> whole{};
};

struct ProfileOptions {
  /// The most records, and pieces of work, of one step; later ones are counted by dropped().
  std::size_t max_records = 1'000'000;
};

struct ProfileTableOptions {
  std::string title = "profile";  ///< in the first line
  /// Operations of a thread, and modules, that are shown: the largest, in the order of operations().
  /// The other operations make one row.
  std::size_t rows = 25;
  /// "blocks.0.up" and "blocks.1.up" are one row, "blocks.*.up".
  bool merge_numbers = true;
};

class Profile {
 public:
  explicit Profile(const ProfileOptions& options = {});
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Begins a step: waits for the CPU's current stream, then records. Throws StateError if a step
  /// has begun already, in this profile or in another one of the rank, or if the rank writes another
  /// trace; and what an earlier failure of the stream was.
  void start();
  /// Ends the step. Throws StateError if none has begun.
  void stop();

  /// A step from here to the end of the scope. A step that ends by an exception is not counted, and
  /// its end waits for no work.
  class Scope {
   public:
    explicit Scope(Profile& profile);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Profile& profile_;
    int exceptions_;
  };

  // Of the steps that were measured so far. These throw StateError while a step is measured.

  std::int64_t steps() const;
  std::int64_t wall_ns() const;  ///< of all steps together
  /// Records and pieces of work that did not fit: if not 0, calls and times are too few.
  std::size_t dropped() const;
  /// "host" first, then the streams. Not kUntimedThread.
  std::vector<std::string> threads() const;
  /// One for each combination of thread, module, name, kind and phase.
  std::vector<ProfileRow> rows() const;
  /// The rows without their modules: by thread (the host, streams, kUntimedThread), then the largest
  /// first: by self time, where that is equal by FLOPs, then by bytes read, written and sent.
  std::vector<ProfileRow> operations() const;
  /// Sorted by path: the root first, kNoModule last.
  std::vector<ProfileModule> modules() const;
  /// Phases, operations and modules as text; all figures are per step.
  std::string table(const ProfileTableOptions& options = {}) const;

 private:
  struct State;
  void end_step() noexcept;
  const State& state(const char* what) const;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
