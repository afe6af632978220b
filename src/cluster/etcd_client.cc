#include "cluster/etcd_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json.h"
#include "transport/socket/http_post.h"

namespace distbelief {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int kHttpOk = 200;
/// While others are left to be asked, one that does not answer is not waited for longer.
constexpr std::chrono::milliseconds kEachServer{700};

std::string base64(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::string_view part = bytes.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < part.size() ? static_cast<unsigned char>(part[i]) : 0);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= part.size() ? kBase64[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

/// Of what etcd wrote; other letters end it.
std::string from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char letter : text) {
    const std::size_t value = kBase64.find(letter);
    if (value == std::string_view::npos) {
      break;
    }
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return bytes;
}

/// etcd writes 64-bit numbers as text, and leaves out those that are 0.
std::int64_t number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  std::int64_t number = 0;
  if (found != object.end() && found->is_string()) {
    const auto& text = found->get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return number;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_string() ? "" : from_base64(found->get_ref<const std::string&>());
}

/// What comes right after all that begins with this.
std::string end_of_range(std::string prefix) {
  ++prefix.back();  // of keys that end in '/'
  return prefix;
}

const std::optional<TlsOptions>& tls_for(const StoreUrl& url, const std::optional<TlsOptions>& tls) {
  static const std::optional<TlsOptions> none;
  if (url.encrypted && !tls) {
    throw InputError(fmt::format("--store {}: etcds:// needs --tls-cert, --tls-key and --tls-ca", url.text()));
  }
  return url.encrypted ? tls : none;
}

}  // namespace

EtcdClient::EtcdClient(StoreUrl url, const std::optional<TlsOptions>& tls)
    : url_(std::move(url)), streams_(tls_for(url_, tls)) {}

std::string EtcdClient::encoded_key(std::string_view key) const { return base64(fmt::format("{}/{}", url_.name, key)); }

EtcdClient::Reply EtcdClient::ask(std::string_view path, const std::string& json, Clock::time_point deadline) {
  std::string reason = "no time was left";
  const std::size_t first = answers_;
  for (std::size_t turn = 0; turn < url_.servers.size() && Clock::now() < deadline; ++turn) {
    const std::size_t index = (first + turn) % url_.servers.size();
    const Address& server = url_.servers[index];
    const bool is_last = turn + 1 == url_.servers.size();
    const HttpAnswer answer =
        http_post(server, streams_, path, json, is_last ? deadline : std::min(deadline, Clock::now() + kEachServer));
    if (answer.status == kHttpOk) {
      answers_ = index;
      return {.body = answer.body};
    }
    const Json said = try_parse_json(answer.body);
    const std::string error =
        said.is_object() && said.contains("error") && said["error"].is_string() ? said["error"].get<std::string>() : "";
    reason = fmt::format("{}: {}", server.text(),
                         answer.status == 0 ? answer.reason
                         : error.empty()    ? fmt::format("answered with HTTP status {}: is this etcd?", answer.status)
                                            : error);
  }
  return {.reason = reason};
}

EtcdClient::Answer EtcdClient::transact(const Transaction& transaction, Clock::time_point deadline) {
  Json reads = Json::array();
  for (const std::string& key : transaction.read) {
    Json range = {{"key", encoded_key(key)}};
    if (key.ends_with('/')) {
      range["range_end"] = base64(end_of_range(fmt::format("{}/{}", url_.name, key)));
    }
    reads.push_back({{"request_range", range}});
  }
  Json request = {{"compare", Json::array()}, {"success", Json::array()}, {"failure", reads}};
  for (const Condition& condition : transaction.if_all) {
    Json compare = {{"result", "EQUAL"}, {"key", encoded_key(condition.key)}};
    compare["target"] = condition.value ? "VALUE" : "MOD";
    if (condition.value) {
      compare["value"] = base64(*condition.value);
    } else {
      compare["mod_revision"] = std::to_string(condition.revision);
    }
    request["compare"].push_back(compare);
  }
  for (const Change& change : transaction.change) {
    Json what = {{"key", encoded_key(change.key)}};
    if (change.value) {
      what["value"] = base64(*change.value);
      what["lease"] = std::to_string(change.lease);
    } else if (change.key.ends_with('/')) {
      what["range_end"] = base64(end_of_range(fmt::format("{}/{}", url_.name, change.key)));
    }
    request["success"].push_back({{change.value ? "request_put" : "request_delete_range", what}});
  }
  request["success"].insert(request["success"].end(), reads.begin(), reads.end());

  const Reply reply = ask("/v3/kv/txn", json_text(request), deadline);
  Answer answer = {.reason = reply.reason};
  if (!reply.reason.empty()) {
    return answer;
  }
  try {
    const Json root = parse_json(reply.body);
    answer.held = root.value("succeeded", false);
    for (const Json& response : root.value("responses", Json::array())) {
      for (const Json& pair : response.value("response_range", Json::object()).value("kvs", Json::array())) {
        const std::string key = text_at(pair, "key");
        answer.values[key.substr(std::min(key.size(), url_.name.size() + 1))] = {text_at(pair, "value"),
                                                                                 number_at(pair, "mod_revision")};
      }
    }
    answer.reached = true;
  } catch (const JsonError& error) {
    answer = {.reason = fmt::format("{}: an answer that is not etcd's: {}", url_.text(), error.what())};
  }
  return answer;
}

EtcdClient::LeaseAnswer EtcdClient::grant_lease(std::chrono::seconds lasts, Clock::time_point deadline) {
  const Reply reply = ask("/v3/lease/grant", json_text(Json({{"TTL", std::to_string(lasts.count())}})), deadline);
  const Json root = try_parse_json(reply.body);
  if (!reply.reason.empty() || !root.is_object() || !root.contains("ID")) {
    return {.reason = reply.reason.empty() ? url_.text() + ": no lease in etcd's answer" : reply.reason};
  }
  return {.reached = true, .lease = number_at(root, "ID"), .left = std::chrono::seconds(number_at(root, "TTL"))};
}

EtcdClient::LeaseAnswer EtcdClient::keep_lease(std::int64_t lease, Clock::time_point deadline) {
  const Reply reply = ask("/v3/lease/keepalive", json_text(Json({{"ID", std::to_string(lease)}})), deadline);
  const Json root = try_parse_json(reply.body);
  if (!reply.reason.empty() || !root.is_object() || !root.contains("result")) {
    return {.reason = reply.reason.empty() ? url_.text() + ": no lease in etcd's answer" : reply.reason};
  }
  return {.reached = true, .lease = lease, .left = std::chrono::seconds(number_at(root["result"], "TTL"))};
}

void EtcdClient::end_lease(std::int64_t lease, Clock::time_point deadline) {
  (void)ask("/v3/lease/revoke", json_text(Json({{"ID", std::to_string(lease)}})), deadline);
}

}  // namespace distbelief
