#include "train/parted_model.h"

#include <algorithm>

#include "exec/part_links.h"
#include "params/parameter_part.h"

namespace distbelief {

PartedModel::PartedModel(const Graph& graph, const ParameterTable& whole, const ParameterTable& own,
                         const Partition& partition, Fabric& fabric, const Options& options)
    : whole_(whole),
      own_(own),
      patience_(options.patience),
      group_(fabric, options.members, options.epoch),
      sent_(options.members.size(), 0),
      received_(options.members.size(), 0) {
  if (leads()) {
    for (int part = 0; part < partition.parts(); ++part) {
      parts_.push_back(part_of(graph, whole, partition, part / partition.tensor, part % partition.tensor).table);
    }
  }
}

void PartedModel::send(int part, std::span<const std::byte> data) {
  Transfer transfer;
  const auto i = static_cast<std::size_t>(part);
  group_.fabric().send(transfer, group_.members()[i], group_.peer_tag(sent_[i]++), data);
  if (const Outcome outcome = group_.fabric().wait(transfer, Clock::now() + patience_); !outcome.ok()) {
    throw ExchangeLost(outcome);
  }
}

void PartedModel::receive(int part, std::span<std::byte> data) {
  Transfer transfer;
  const auto i = static_cast<std::size_t>(part);
  group_.fabric().receive(transfer, group_.members()[i], group_.peer_tag(received_[i]++), data);
  if (const Outcome outcome = group_.fabric().wait(transfer, Clock::now() + patience_); !outcome.ok()) {
    throw ExchangeLost(outcome);
  }
}

std::int64_t PartedModel::floats_of(const ParameterEntry* part, std::int64_t first, std::int64_t count) {
  std::int64_t floats = 0;
  if (part != nullptr) {
    for_each_run(part->spec, first, first + count,
                 [&](std::int64_t /*whole*/, std::int64_t /*part*/, std::int64_t run) { floats += run; });
  }
  return floats;
}

std::vector<FloatArray> PartedModel::arrays(std::span<const List> lists) {
  std::vector<FloatArray> arrays;
  for (std::size_t number = 0; number < lists.size(); ++number) {
    for (std::size_t i = 0; i < whole_.entries().size(); ++i) {
      const ParameterEntry& entry = whole_.entries()[i];
      arrays.push_back({.name = lists[number].prefix + entry.name,
                        .shape = entry.shape,
                        .read = [this, list = lists[number], number, i](std::int64_t first, std::span<float> out) {
                          read(list, number, i, first, out);
                        }});
    }
  }
  return arrays;
}

void PartedModel::read(const List& list, std::size_t number, std::size_t entry, std::int64_t first,
                       std::span<float> out) {
  const auto count = std::ssize(out);
  for (int part = 0; part < group_.size(); ++part) {
    const ParameterEntry* const held = parts_[static_cast<std::size_t>(part)].find(whole_.entries()[entry].name);
    const std::int64_t floats = floats_of(held, first, count);
    if (floats == 0) {
      continue;
    }
    const float* source = nullptr;
    if (part != 0) {
      const Order order = {.kind = Order::Kind::give,
                           .list = static_cast<std::int64_t>(number),
                           .entry = static_cast<std::int64_t>(entry),
                           .first = first,
                           .count = count};
      send(part, std::as_bytes(std::span(&order, 1)));
      buffer_.resize(static_cast<std::size_t>(floats));
      receive(part, std::as_writable_bytes(std::span(buffer_)));
      source = buffer_.data();
    }
    std::int64_t done = 0;
    for_each_run(held->spec, first, first + count, [&](std::int64_t whole, std::int64_t place, std::int64_t run) {
      const float* from = part == 0 ? list.floats.data() + held->range.begin + place : source + done;
      std::copy_n(from, run, out.data() + (whole - first));
      done += run;
    });
    if (held->spec.part_axis < 0) {
      break;  // the others have copies
    }
  }
}

void PartedModel::write(const List& list, std::size_t number, const ParameterEntry& entry, std::int64_t first,
                        std::span<const float> values) {
  const auto count = std::ssize(values);
  for (int part = 0; part < group_.size(); ++part) {
    const ParameterEntry* const held = parts_[static_cast<std::size_t>(part)].find(entry.name);
    const std::int64_t floats = floats_of(held, first, count);
    if (floats == 0) {
      continue;
    }
    buffer_.resize(static_cast<std::size_t>(floats));
    std::int64_t done = 0;
    for_each_run(held->spec, first, first + count, [&](std::int64_t whole, std::int64_t place, std::int64_t run) {
      float* to = part == 0 ? list.floats.data() + held->range.begin + place : buffer_.data() + done;
      std::copy_n(values.data() + (whole - first), run, to);
      done += run;
    });
    if (part != 0) {
      const Order order = {.kind = Order::Kind::take,
                           .list = static_cast<std::int64_t>(number),
                           .entry = &entry - whole_.entries().data(),
                           .first = first,
                           .count = count};
      send(part, std::as_bytes(std::span(&order, 1)));
      send(part, std::as_bytes(std::span(buffer_)));
    }
  }
}

void PartedModel::finish(bool succeeded) {
  for (int part = 1; part < group_.size(); ++part) {
    const Order order = {.succeeded = succeeded ? 1 : 0};
    send(part, std::as_bytes(std::span(&order, 1)));
  }
}

bool PartedModel::serve(std::span<const List> lists) {
  while (true) {
    Order order;
    receive(0, std::as_writable_bytes(std::span(&order, 1)));
    if (order.kind == Order::Kind::finish) {
      return order.succeeded != 0;
    }
    const ParameterEntry& held = own_.at(whole_.entries().at(static_cast<std::size_t>(order.entry)).name);
    float* const own = lists[static_cast<std::size_t>(order.list)].floats.data() + held.range.begin;
    buffer_.resize(static_cast<std::size_t>(floats_of(&held, order.first, order.count)));
    const bool gives = order.kind == Order::Kind::give;
    if (!gives) {
      receive(0, std::as_writable_bytes(std::span(buffer_)));
    }
    std::int64_t done = 0;
    for_each_run(held.spec, order.first, order.first + order.count,
                 [&](std::int64_t /*whole*/, std::int64_t place, std::int64_t run) {
                   std::copy_n(gives ? own + place : buffer_.data() + done, run,
                               gives ? buffer_.data() + done : own + place);
                   done += run;
                 });
    if (gives) {
      send(0, std::as_bytes(std::span(buffer_)));
    }
  }
}

}  // namespace distbelief
