#include "rank_table.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

#include "comm.h"
#include "json.h"

namespace isthmus::ascend::hccl {
namespace {

using std::invalid_argument;

const Json& required(const Json& object, const char* name, Json::Kind kind, const char* kind_name) {
  const Json* const found = object.member(name);
  if (found == nullptr) throw invalid_argument(std::string(name) + " is missing");
  if (found->kind != kind) throw invalid_argument(std::string(name) + " is not " + kind_name);
  return *found;
}

const std::string& string_in(const Json& object, const char* name) {
  return required(object, name, Json::kString, "a string").text;
}

uint32_t number_in(const Json& object, const char* name) {
  const std::string& text = string_in(object, name);
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw invalid_argument(std::string(name) + " is \"" + text + "\", expected a number in quotes");
  return number;
}

void require_text(const Json& object, const char* name, const char* expected) {
  const std::string& text = string_in(object, name);
  if (text != expected)
    throw invalid_argument(std::string(name) + " is \"" + text + "\", expected \"" + expected + "\"");
}

template <typename Value>
void add_new(std::set<Value>& known, const Value& value, const std::string& what) {
  if (!known.insert(value).second) throw invalid_argument(what + " occurs twice");
}

void add_ranks(const Json& server, std::set<uint32_t>& ranks) {
  std::set<uint32_t> devices;
  for (const Json& device : required(server, "device", Json::kArray, "an array").elements) {
    const uint32_t id = number_in(device, "device_id"), rank = number_in(device, "rank_id");
    string_in(device, "device_ip");
    add_new(devices, id, "device_id " + std::to_string(id) + " of server " + string_in(server, "server_id"));
    add_new(ranks, rank, "rank_id " + std::to_string(rank));
  }
}

// Number of ranks.
uint32_t ranks_in(const Json& table) {
  if (table.kind != Json::kObject) throw invalid_argument("it is not a JSON object");
  require_text(table, "status", "completed");
  require_text(table, "version", "1.0");
  const auto& servers = required(table, "server_list", Json::kArray, "an array").elements;
  const uint32_t count = number_in(table, "server_count");
  if (count != servers.size())
    throw invalid_argument("server_count is " + std::to_string(count) + ", but server_list has " +
                           std::to_string(servers.size()) + " servers");
  std::set<std::string> names;
  std::set<uint32_t> ranks;
  for (const Json& server : servers) {
    const std::string& name = string_in(server, "server_id");
    add_new(names, name, "server_id " + name);
    add_ranks(server, ranks);
  }
  if (ranks.empty()) throw invalid_argument("it has no devices");
  const auto size = static_cast<uint32_t>(ranks.size());
  if (*ranks.rbegin() != size - 1)
    throw invalid_argument("its " + std::to_string(size) + " ranks are not 0 to " + std::to_string(size - 1));
  return size;
}

}  // namespace

RankTable read_rank_table(const char* path) {
  std::ifstream file(path);
  if (!file)
    throw Failure{kInvalidParameter,
                  std::string("cannot read rank table ") + path + ": " + std::strerror(errno)};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    const uint32_t size = ranks_in(parse_json(text));
    return {std::filesystem::canonical(path), text, size};
  } catch (const invalid_argument& error) {
    throw Failure{kInvalidParameter, std::string("rank table ") + path + ": " + error.what()};
  }
}

}  // namespace isthmus::ascend::hccl
