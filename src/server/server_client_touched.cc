// What a ServerClient does with batches that touch few of the parameters.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "server/request.h"
#include "server/server_client_place.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

/// Runs are worth their trouble, for both ends, only where they are much shorter than all of it.
bool is_most_of(std::size_t runs_bytes, std::size_t whole_bytes) { return 2 * runs_bytes > whole_bytes; }

/// Of runs of several batches, each of which ascends, those that have a place in common become one. Runs that only
/// touch stay apart: they may be of two blocks.
void unite(std::vector<FloatRun>& runs) {
  std::ranges::sort(runs, {}, &FloatRun::begin);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    FloatRun& last = runs[kept];
    if (runs[i].begin < last.end()) {
      last.count = static_cast<std::uint32_t>(std::max(last.end(), runs[i].end()) - last.begin);
    } else {
      runs[++kept] = runs[i];
    }
  }
  runs.resize(std::min(kept + 1, runs.size()));
}

}  // namespace

void ServerClient::add_touched(const TouchedRuns& touched, std::span<const float> gradient, float factor) {
  check(added_ == 0 || added_is_runs_, "what is pushed is of one kind");
  added_is_runs_ = true;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = *places_[i];
    float* numbers = place.numbers(place.gathered);
    if (added_ == 0) {
      std::ranges::copy(place.seen, place.versions(place.gathered).begin());
      if (!place.gathered_is_clear) {
        std::fill_n(numbers, place.floats, 0.0F);
        place.gathered_is_clear = true;
      }
    }
    const TouchedRuns::OfServer& own = touched.servers()[i];
    for (std::size_t k = 0; k < own.runs.size(); ++k) {
      const float* from = gradient.data() + own.places[k];
      float* into = numbers + own.runs[k].begin;
      if (factor != 1 && k < own.optimized) {
        axpy(factor, from, into, own.runs[k].count);
      } else if (added_ == 0) {
        std::copy_n(from, own.runs[k].count, into);
      } else {
        distbelief::add(into, from, into, own.runs[k].count);
      }
    }
    place.added_runs.insert(place.added_runs.end(), own.runs.begin(), own.runs.end());
  }
  ++added_;
}

void ServerClient::discard() {
  added_ = 0;
  for (const std::unique_ptr<Place>& place : places_) {
    place->added_runs.clear();
    place->gathered_is_clear = false;
  }
}

std::optional<ServerClient::RunsBody> ServerClient::move_runs(Place& place) {
  std::vector<FloatRun>& runs = place.added_runs;
  const auto meet = [](const FloatRun& one, const FloatRun& next) { return next.begin < one.end(); };
  if (std::ranges::adjacent_find(runs, meet) != runs.end()) {
    unite(runs);
  }
  const std::size_t floats = floats_of_runs(runs);
  const std::size_t bytes = runs_request_bytes(RequestHead::Kind::push, place.parts.size(), runs.size(), floats);
  if (is_most_of(bytes, request_bytes(RequestHead::Kind::push, place.parts.size(), place.floats))) {
    return {};
  }
  const Buffer& body = place.change->body();
  std::ranges::copy(place.versions(place.gathered), place.versions(body).begin());
  auto* out_runs = reinterpret_cast<FloatRun*>(body.data() + place.versions_bytes());
  auto* out = reinterpret_cast<float*>(std::ranges::copy(runs, out_runs).out);
  float* numbers = place.numbers(place.gathered);
  for (const FloatRun& run : runs) {
    for (float* from = numbers + run.begin; from != numbers + run.end(); ++from) {
      *out++ = std::exchange(*from, 0.0F);
    }
  }
  const RunsBody made = {runs.size(), bytes};
  runs.clear();
  return made;
}

void ServerClient::begin_fetch_touched(const TouchedRuns& touched, Freshness freshness) {
  check(!fetching_, "one fetch is on its way at a time");
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = *places_[i];
    const TouchedRuns::OfServer& few = touched.servers()[i];
    const TouchedRuns::OfServer& own =
        is_most_of(few.bytes(), place.floats * sizeof(float)) ? touched.everything_of(i) : few;
    place.fetched_runs = own.runs;
    place.fetched_places = own.places;
    Asked& asked = *place.read;
    const std::size_t bytes =
        runs_request_bytes(RequestHead::Kind::fetch, place.parts.size(), own.runs.size(), own.floats);
    asked.make_room(bytes);
    std::ranges::copy(place.seen, place.versions(asked.body()).begin());
    std::ranges::copy(own.runs, reinterpret_cast<FloatRun*>(asked.body().data() + place.versions_bytes()));
    asked.request = {.kind = RequestHead::Kind::fetch,
                     .incarnation = options_.incarnation,
                     .awaits_newer = freshness == Freshness::all_newer ? 1U : 0U,
                     .runs = own.runs.size(),
                     .body_bytes = bytes};
  }
  fetching_ = true;
  submit(places_, &Place::read);
}

bool ServerClient::brought_runs(const Place& place) {
  const std::size_t floats = floats_of_runs(place.fetched_runs);
  return place.read->reply.body_bytes == place.versions_bytes() + floats * sizeof(float);
}

void ServerClient::take_runs(Place& place, std::span<float> values) {
  const auto versions = place.versions(place.read->reply_body());
  for (std::size_t i = 0; i < versions.size(); ++i) {
    place.seen[i] = versions[i];
    if (place.have[i] != versions[i]) {
      place.have[i] = ParameterServer::kNothing;  // of several versions
    }
  }
  const float* numbers = place.numbers(place.read->reply_body());
  for (std::size_t k = 0; k < place.fetched_runs.size(); ++k) {
    float* into = values.data() + place.fetched_places[k];
    for (std::uint32_t left = place.fetched_runs[k].count; left > 0; --left) {
      *into++ = *numbers++;
    }
  }
  place.read->end();
}

}  // namespace distbelief
