#pragma once

/// Texts between ranks, and errors that all ranks throw: a rank that failed alone would leave the others
/// waiting in the next collective. For reading and writing files, and other work between steps.
///
/// A null group is this rank alone. All functions with a group are collective.

#include <functional>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// Every rank's, in rank order, on all ranks.
std::vector<std::string> all_gather_texts(ProcessGroup* group, const std::string& text);
/// The same for lists.
std::vector<std::vector<std::string>> all_gather_lists(ProcessGroup* group,
                                                       const std::vector<std::string>& texts);
/// Every rank's on the first rank; the other ranks get nothing.
std::vector<std::string> gather_texts(ProcessGroup* group, const std::string& text);
/// The first rank's, on all ranks.
std::string first_text(ProcessGroup* group, const std::string& text);
/// True for the first rank.
bool is_first(const ProcessGroup* group);

/// Runs something that does not communicate. Returns its error as a text for throw_first; empty if there
/// is none.
std::string error_of(const std::function<void()>& work);
/// Throws the error that a text of error_of() stands for; nothing if it is empty.
void throw_error_of(const std::string& error);
/// Throws the error of the first rank that has one, on all ranks, with its text: InvalidArgument,
/// CheckpointError, or StateError for another type.
void throw_first(ProcessGroup* group, const std::string& error);
/// Both.
void on_all_ranks(ProcessGroup* group, const std::function<void()>& work);
/// The same for work of the first rank.
void on_first_rank(ProcessGroup* group, const std::function<void()>& work);

}  // namespace tessera::distributed
