#include "train/job_invitation.h"

#include <poll.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "train/team.h"
#include "transport/socket/endpoint.h"

namespace distbelief {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::uint32_t kMeetingEpoch = 0x1ff;  ///< of the group that only hears where the job is

}  // namespace

std::string JobInvitation::text() const {
  json root = {{"folder", folder.string()},
               {"working_folder", working_folder.string()},
               {"addresses", json::array()},
               {"token", token},
               {"config", config},
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
    const json root = json::parse(text);
    JobInvitation invitation = {.folder = root.at("folder").get<std::string>(),
                                .working_folder = root.at("working_folder").get<std::string>(),
                                .token = root.at("token"),
                                .config = root.at("config"),
                                .host = root.at("host"),
                                .rank = root.at("rank"),
                                .launch = root.at("launch"),
                                .resumes = root.at("resumes"),
                                .restarts = root.at("restarts")};
    for (const json& address : root.at("addresses")) {
      invitation.addresses.push_back(Address::parse(address.get<std::string>()));
    }
    return invitation;
  } catch (const json::exception&) {
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
