// What a client does where servers keep vectors: it orders operations on them, or asks for what is to be computed.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "server/request.h"
#include "server/server_client.h"
#include "server/server_client_place.h"

namespace distbelief {

ServerClient::PushReport ServerClient::run_vectors(std::span<const VectorOrder> orders, std::uint64_t low_water,
                                                   std::vector<double>& dots, Clock::time_point deadline) {
  check(orders.size_bytes() <= kMostWords, "orders are short");
  PushReport report = wait_pushed(deadline);
  if (!report.outcome.ok()) {
    return report;
  }
  const std::uint64_t number = next_number();
  for (const std::unique_ptr<Place>& place : places_) {
    Asked& asked = *place->change;
    std::memcpy(asked.body().data(), orders.data(), orders.size_bytes());
    asked.request = {.kind = RequestHead::Kind::vectors,
                     .incarnation = options_.incarnation,
                     .low_water = low_water,
                     .number = number,
                     .body_bytes = orders.size_bytes()};
  }
  pushing_ = true;
  submit(places_, &Place::change);
  report = wait_pushed(deadline);
  dots.assign(dots_of(orders), 0.0);
  for (const std::unique_ptr<Place>& place : places_) {
    if (!report.outcome.ok()) {
      return report;
    }
    Asked& asked = *place->change;
    if (asked.reply.body_bytes != dots.size() * sizeof(double)) {
      report.outcome = {Outcome::Kind::mismatch, {}, "a server told other dot products than it was asked for"};
      return report;
    }
    const std::span<const double> told = asked.reply_body().as<double>().first(dots.size());
    std::ranges::transform(dots, told, dots.begin(), std::plus<>());
    order_bytes_ += place->here ? 0 : orders.size_bytes() + asked.reply.body_bytes;
    asked.end();
  }
  return report;
}

void ServerClient::begin_asking(bool waits) {
  check(!asking_ && !fetching_, "what reads goes one after the other");
  places_.front()->read->request = {
      .kind = RequestHead::Kind::work, .incarnation = options_.incarnation, .awaits_newer = waits ? 1U : 0U};
  asking_ = true;
  submit(std::span(&places_.front(), 1), &Place::read);
}

Outcome ServerClient::wait_asked(std::optional<Work>& work, Clock::time_point deadline) {
  check(asking_, "who waits for work has asked for it");
  Asked& asked = *places_.front()->read;
  Outcome outcome = wait(asked, deadline);
  work.reset();
  if (!outcome.ok()) {
    return outcome;
  }
  if (asked.reply.body_bytes == sizeof(Work)) {
    std::memcpy(&work.emplace(), asked.reply_body().data(), sizeof(Work));
  }
  asking_ = false;
  asked.end();
  return {};
}

}  // namespace distbelief
