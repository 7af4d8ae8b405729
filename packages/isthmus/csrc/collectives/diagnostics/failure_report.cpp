#include "collectives/diagnostics/failure_report.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "isthmus_options.h"

namespace isthmus {
namespace {

const char* name_of(Failure::Kind kind) {
  switch (kind) {
    case Failure::Kind::kTimeout:
      return "timeout";
    case Failure::Kind::kPeerLost:
      return "peer_lost";
    case Failure::Kind::kAborted:
      return "aborted";
    case Failure::Kind::kMismatch:
      return "mismatch";
    default:
      return "error";
  }
}

std::string quote(const std::string& text) {
  std::string result = "\"";
  for (const char each : text) {
    if (each == '"' || each == '\\') {
      result += '\\';
      result += each;
    } else if (static_cast<unsigned char>(each) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(each));
      result += escape;
    } else {
      result += each;
    }
  }
  return result + "\"";
}

template <typename Numbers>
std::string list_text(const Numbers& numbers) {
  std::string text;
  for (const auto number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

void write_to(const std::string& path, int flags, const std::string& text) {
  const int file = TEMP_FAILURE_RETRY(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0640));
  TORCH_CHECK(file >= 0, "cannot write ", path, ": ", std::strerror(errno));
  int error = fchmod(file, 0640) == 0 ? 0 : errno;
  for (size_t written = 0; error == 0 && written < text.size();) {
    const ssize_t part = TEMP_FAILURE_RETRY(::write(file, text.data() + written, text.size() - written));
    if (part < 0) error = errno;
    written += static_cast<size_t>(std::max<ssize_t>(part, 0));
  }
  if (close(file) != 0 && error == 0) error = errno;
  TORCH_CHECK(error == 0, "cannot write ", path, ": ", std::strerror(error));
}

// Appends a line to ISTHMUS_FAILURE_FILE. Returns whether that succeeded.
bool append(const std::string& json) noexcept {
  try {
    const std::string path = options::read(options::kFailureFile);
    if (path.empty()) return false;
    // It also begins a line, because a write that failed may have left part of one.
    write_to(path, O_APPEND, "\n" + json + "\n");
    return true;
  } catch (const std::exception& error) {
    LOG(ERROR) << "isthmus: the failure record was not written: " << error.what();
    return false;
  }
}

}  // namespace

std::string duration_text(std::chrono::milliseconds duration) {
  const bool is_whole = duration.count() % 1000 == 0;
  return is_whole ? std::to_string(duration.count() / 1000) + " s" : std::to_string(duration.count()) + " ms";
}

std::string timeout_text(std::chrono::milliseconds timeout, const MissingRanks& missing) {
  std::string text = "timed out after " + duration_text(timeout);
  if (!missing.ranks.empty()) text += " waiting for ranks " + list_text(missing.ranks);
  return text + missing.details;
}

std::string failure_json(const Failure& failure, const std::string& message, const std::string& group,
                         int rank, const std::vector<uint64_t>& global_ranks) {
  const auto global = [&](int number) {
    const auto index = static_cast<size_t>(number);
    return index < global_ranks.size() ? static_cast<int>(global_ranks[index]) : number;
  };
  std::vector<int> ranks;
  for (const int each : failure.ranks) ranks.push_back(global(each));
  const std::vector<int64_t> processes(failure.process == 0 ? 0 : 1, failure.process);
  return "{\"rank\": " + std::to_string(global(rank)) + ", \"process\": " + std::to_string(getpid()) +
         ", \"kind\": " + quote(name_of(failure.kind)) + ", \"group\": " + quote(group) +
         ", \"operation\": " + quote(failure.operation) + ", \"number\": " + std::to_string(failure.number) +
         ", \"ranks\": " + list_text(ranks) + ", \"processes\": " + list_text(processes) +
         ", \"message\": " + quote(message) + "}";
}

bool FailureRecord::write(const std::string& json, bool is_provisional) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_written_ || !append(json)) return false;
  is_written_ = !is_provisional;
  return true;
}

void FailureRecord::add(std::string json, const std::string& first) noexcept {
  json.insert(json.size() - 1, ", \"first\": " + first);
  append(json);
}

void write_file(const std::string& path, const std::string& text) {
  const std::filesystem::path target(path);
  const std::string name = "." + target.filename().string() + "." + std::to_string(getpid());
  const std::string beside = target.parent_path() / name;
  try {
    write_to(beside, O_TRUNC, text);
    std::filesystem::rename(beside, target);
  } catch (const std::exception&) {
    unlink(beside.c_str());
    throw;
  }
}

}  // namespace isthmus
