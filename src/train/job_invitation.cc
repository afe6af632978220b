#include "train/job_invitation.h"

#include <poll.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "train/team.h"
#include "transport/socket/endpoint.h"

namespace distbelief {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::uint32_t kMeetingEpoch = 0x1ff;  ///< of the group that only hears where the job is

/// Names in it may be any bytes, which must arrive as they are; JSON takes characters: byte 233 travels as U+00E9.
std::string characters_of(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) {
      text += static_cast<char>(0xC0 | byte >> 6);
    }
    text += byte >= 0x80 ? static_cast<char>(0x80 | (byte & 0x3F)) : c;
  }
  return text;
}

std::string bytes_of(const Json& value) {
  std::string bytes;
  const auto& text = value.get_ref<const std::string&>();
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const bool pair = (lead == 0xC2 || lead == 0xC3) && at + 1 < text.size();
    bytes += pair ? static_cast<char>((lead & 3) << 6 | (static_cast<unsigned char>(text[at + 1]) & 0x3F)) : text[at];
    at += pair ? 1 : 0;
  }
  return bytes;
}

}  // namespace

std::string JobInvitation::text() const {
  Json root = {{"folder", characters_of(folder.string())},
               {"working_folder", characters_of(working_folder.string())},
               {"addresses", Json::array()},
               {"token", token},
               {"config", characters_of(config)},
               {"host", host},
               {"rank", rank},
               {"launch", launch},
               {"resumes", resumes},
               {"restarts", restarts}};
  for (const Address& address : addresses) {
    root["addresses"].push_back(address.text());
  }
  return json_text(root) + "\n";
}

JobInvitation JobInvitation::parse(const std::string& text) {
  try {
    const Json root = parse_json(text);
    JobInvitation invitation = {.folder = bytes_of(root.at("folder")),
                                .working_folder = bytes_of(root.at("working_folder")),
                                .token = root.at("token"),
                                .config = bytes_of(root.at("config")),
                                .host = root.at("host"),
                                .rank = root.at("rank"),
                                .launch = root.at("launch"),
                                .resumes = root.at("resumes"),
                                .restarts = root.at("restarts")};
    for (const Json& address : root.at("addresses")) {
      invitation.addresses.push_back(Address::parse(address.get<std::string>()));
    }
    return invitation;
  } catch (const JsonError&) {
    throw InputError("standard input: expected what 'distbelief train' tells a worker");  // never what came: the token
  }
}

JobInvitation JobInvitation::read(int fd, Clock::time_point deadline) {
  std::string text;
  while (text.empty() || text.back() != '\n') {
    char byte = 0;
    if (!wait_for_events(fd, POLLIN, deadline) || text.size() >= kMostBytes || ::read(fd, &byte, 1) != 1) {
      throw InputError("standard input: ended before it said which job to join");
    }
    text += byte;
  }
  return parse(text);
}

Outcome share_text(Fabric& fabric, std::string& text, std::chrono::seconds patience) {
  Group group(fabric, all_ranks(fabric), kMeetingEpoch);
  return Team{.group = &group, .patience = patience}.share(text);
}

}  // namespace distbelief
