// From a graph and a partition to what each process does. Between a node and its readers a value may change hands: in
// which form a reader needs it follows from the reader's cut, and in which form it is there from that of its maker.
// What has to be done is an exchange layer, which stands in the part's graph like any other; all readers that need the
// same form have it from the same one, so that nothing crosses twice.
#include "plan/partition.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "graph/exchanges/halo_exchange.h"
#include "graph/exchanges/stage_exchange.h"
#include "graph/exchanges/tensor_exchange.h"
#include "plan/parameter_layout.h"

namespace distbelief {
namespace {

using Exchanged = TensorExchangeOptions::Kind;
using Bounds = std::vector<std::int64_t>;

constexpr std::int64_t kGrain = 16;

bool is_sliced(const HeldValue& value, int axis) { return value.kind == HeldValue::Kind::sliced && value.axis == axis; }

HeldValue sliced(int axis, Bounds bounds) { return {HeldValue::Kind::sliced, axis, std::move(bounds)}; }

Bounds scaled(const Bounds& bounds, std::int64_t to) {
  Bounds result;
  for (const std::int64_t bound : bounds) {
    result.push_back(bound * to / bounds.back());
  }
  return result;
}

bool has_empty(const Bounds& bounds) {
  return std::ranges::adjacent_find(bounds, std::greater_equal<>()) != bounds.end();
}

Slice slice_of(const Bounds& bounds, int position) {
  const auto i = static_cast<std::size_t>(position);
  return {bounds[i], bounds[i + 1], bounds.back()};
}

/// What those that share a stage have of its work; empty: equal shares.
std::vector<double> shares_of_stage(const Partition& partition, int stage) {
  if (partition.shares.empty()) {
    return {};
  }
  check(std::ssize(partition.shares) == partition.parts(), "a share for each part");
  const auto first = partition.shares.begin() + static_cast<std::ptrdiff_t>(stage) * partition.tensor;
  return {first, first + partition.tensor};
}

[[noreturn]] void refuse(const Graph& graph, const Node& node, Cut cut, const std::string& why) {
  std::vector<std::string> possible;
  std::vector<ValueSpec> inputs;
  for (const NodeId input : node.inputs) {
    inputs.push_back(graph.node(input).output);
  }
  for (const Cut other : node.layer->cuts(inputs)) {
    possible.emplace_back(name_of(other));
  }
  possible.emplace_back(name_of(Cut::none));
  throw InputError(fmt::format("model {}, layer '{}' ({}) cannot be cut {}: {}; possible: {}", graph.name(), node.name,
                               node.layer->type(), name_of(cut), why, fmt::join(possible, ", ")));
}

}  // namespace

Partition uncut(const Graph& graph) {
  return {.stage = std::vector<int>(graph.nodes().size(), 0),
          .cuts = std::vector<Cut>(graph.nodes().size(), Cut::none)};
}

std::vector<std::int64_t> cut_places(std::int64_t places, int count, const std::vector<double>& shares) {
  check(places >= count && count > 0, "each gets a place");
  std::vector<double> parts = shares;
  parts.resize(static_cast<std::size_t>(count), shares.empty() ? 1.0 : 0.0);
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  const std::int64_t grain = places >= 2 * kGrain * count ? kGrain : 1;
  Bounds bounds = {0};
  double before = 0;
  for (int i = 1; i <= count; ++i) {
    before += parts[static_cast<std::size_t>(i) - 1];
    const auto wanted = static_cast<std::int64_t>(
                            std::llround(static_cast<double>(places) * before / sum / static_cast<double>(grain))) *
                        grain;
    bounds.push_back(i == count ? places : std::clamp(wanted, bounds.back() + 1, places - (count - i)));
  }
  return bounds;
}

std::vector<NodeWork> share_out(const Graph& graph, const Partition& partition) {
  std::vector<NodeWork> work(graph.nodes().size());
  for (NodeId id = 1; id <= graph.output(); ++id) {
    const Node& node = graph.node(id);
    const Cut cut = partition.cuts[static_cast<std::size_t>(id)];
    NodeWork& own = work[static_cast<std::size_t>(id)];
    if (cut == Cut::none || partition.tensor == 1) {
      continue;
    }
    const std::vector<ValueSpec> inputs = graph.input_specs(id);
    const std::vector<Cut> offered = node.layer->cuts(inputs);
    if (std::ranges::find(offered, cut) == offered.end()) {
      refuse(graph, node, cut, "it does not bear that");
    }
    const std::int64_t places = node.layer->cut_places(cut, inputs);
    if (places < partition.tensor) {
      refuse(graph, node, cut,
             fmt::format("it has {} to share out, which is too little for {} processes", places, partition.tensor));
    }
    const HeldValue& source = work[static_cast<std::size_t>(node.inputs[0])].made;
    own.bounds =
        cut_places(places, partition.tensor, shares_of_stage(partition, partition.stage[static_cast<std::size_t>(id)]));
    switch (cut) {
      case Cut::none:
        break;
      case Cut::outputs:
        own.made = sliced(1, own.bounds);
        break;
      case Cut::inputs:
        if (is_sliced(source, 1)) {
          own.bounds = source.bounds;
        }
        own.made = {.kind = HeldValue::Kind::partial};
        break;
      case Cut::channels:
        if (is_sliced(source, 1)) {
          own.bounds = source.bounds;
        }
        own.made = sliced(1, scaled(own.bounds, node.output.shape[1]));
        break;
      case Cut::region:
        if (is_sliced(source, 2) && !has_empty(scaled(source.bounds, places))) {
          own.bounds = scaled(source.bounds, places);
        }
        own.made = sliced(2, own.bounds);
        break;
    }
  }
  return work;
}

namespace {

/// Builds the part of one process.
class PartBuilder {
 public:
  PartBuilder(const Graph& graph, const ParameterTable& whole, const Partition& partition, int stage, int position)
      : graph_(graph),
        whole_(whole),
        partition_(partition),
        stage_(stage),
        position_(position),
        work_(share_out(graph, partition)),
        part_(graph.name()) {
    refuse_lonely_biases();
    find_trained();
    for (const Node& node : graph.nodes()) {
      for (const NodeId input : node.inputs) {
        if (input != 0 && stage_of(&graph.node(input)) != stage_of(&node)) {
          readers_.emplace(input, stage_of(&node));
        }
      }
    }
  }

  NetworkPart build() && {
    const Node& input = graph_.node(0);
    part_.add_input(input.output.shape.sample(), input.output.kind);
    here_[{0, Form{}}] = 0;
    for (NodeId id = 1; id <= graph_.output(); ++id) {
      if (stage_of(&graph_.node(id)) == stage_) {
        add(id);
        send(id);
      }
    }
    LossPtr loss;
    if (stage_ == partition_.stages - 1) {
      const NodeId output = obtain(graph_.output(), {Form::Kind::whole});
      check(output == part_.output(), "the prediction comes last");
      loss = graph_.shared_loss();
    }
    part_.finish_part(std::move(loss));
    std::vector<Range> partial = finish_table();
    return {std::move(part_), std::move(table_), std::move(partial)};
  }

 private:
  /// In which form a reader needs a value.
  struct Form {
    enum class Kind : std::uint8_t { as_made, whole, use, sliced, rows } kind = Kind::as_made;
    int axis = 1;
    Bounds bounds = {};
    std::vector<std::int64_t> rows = {};  ///< begin and end for each process
    float fill = 0;
    auto operator<=>(const Form&) const = default;
  };

  int stage_of(const Node* node) const {
    return partition_.stage[static_cast<std::size_t>(node - graph_.nodes().data())];
  }
  const NodeWork& work_of(NodeId id) const { return work_[static_cast<std::size_t>(id)]; }

  /// A layer that is cut by inputs has its bias in one process only. All of them must train something of it, or none.
  void refuse_lonely_biases() const {
    for (NodeId id = 1; id <= graph_.output(); ++id) {
      const Node& node = graph_.node(id);
      const bool cut = partition_.tensor > 1 && partition_.cuts[static_cast<std::size_t>(id)] == Cut::inputs;
      const ParameterEntry* const weight = whole_.find(node.name + ".weight");
      const ParameterEntry* const bias = whole_.find(node.name + ".bias");
      if (cut && weight != nullptr && bias != nullptr && weight->frozen && !bias->frozen) {
        refuse(graph_, node, Cut::inputs, "its weight is frozen, and its bias is not");
      }
    }
  }

  /// Which values have a gradient: something before them, or the node itself, is trained.
  void find_trained() {
    trained_.assign(graph_.nodes().size(), false);
    for (NodeId id = 1; id <= graph_.output(); ++id) {
      const Node& node = graph_.node(id);
      bool trained = std::ranges::any_of(node.inputs, [&](NodeId input) { return is_trained(input); });
      for (const ParameterSpec& spec : node.layer->parameters(graph_.input_specs(id))) {
        trained = trained || (spec.kind == ParameterKind::optimized && !whole_.at(parameter_name(node, spec)).frozen);
      }
      trained_[static_cast<std::size_t>(id)] = trained;
    }
  }
  bool is_trained(NodeId id) const { return trained_[static_cast<std::size_t>(id)]; }

  NodeId append(const Node& node, const char* what, LayerPtr layer, NodeId input) {
    std::string name = fmt::format("{}/{}", node.name, what);
    for (int number = 2; names_.contains(name); ++number) {
      name = fmt::format("{}/{}{}", node.name, what, number);
    }
    names_.insert(name);
    return part_.add(name, std::move(layer), {input});
  }
  NodeId exchange(NodeId value, const char* what, Exchanged kind, NodeId input, int axis = 1, Bounds bounds = {}) {
    return append(graph_.node(value), what,
                  std::make_shared<TensorExchange>(TensorExchangeOptions{
                      .kind = kind, .axis = axis, .bounds = std::move(bounds), .position = position_}),
                  input);
  }

  /// The value as it was made, or in the form in which it comes from another stage.
  NodeId as_made(NodeId id) {
    if (const auto found = here_.find({id, Form{}}); found != here_.end()) {
      return found->second;
    }
    // In the order in which they are sent: a link may not be able to let one overtake another.
    for (const auto& [other, to] : readers_) {
      if (other < id && to == stage_ && stage_of(&graph_.node(other)) == stage_of(&graph_.node(id))) {
        as_made(other);
      }
    }
    const Node& node = graph_.node(id);
    const HeldValue held = held_here(id);
    std::vector<std::int64_t> sample = node.output.shape.sample().dims();
    if (held.kind == HeldValue::Kind::sliced) {
      sample[static_cast<std::size_t>(held.axis) - 1] = slice_of(held.bounds, position_).size();
    }
    const NodeId received =
        append(node, "receive",
               std::make_shared<ReceiveValue>(ReceiveValue::Options{.value = value_number(id, stage_),
                                                                    .stage = stage_of(&node),
                                                                    .sample = Shape(std::move(sample)),
                                                                    .wants_gradient = is_trained(id)}),
               0);
    return here_[{id, Form{}}] = received;
  }
  /// How the value is held in this stage. Sums are made before they leave theirs.
  HeldValue held_here(NodeId id) const {
    const HeldValue& made = work_of(id).made;
    const bool elsewhere = id != 0 && stage_of(&graph_.node(id)) != stage_;
    return elsewhere && made.kind == HeldValue::Kind::partial ? HeldValue{} : made;
  }
  /// Its number among all that pass between stages.
  int value_number(NodeId id, int to) const {
    return static_cast<int>(std::ranges::distance(readers_.begin(), readers_.find({id, to})));
  }

  NodeId obtain(NodeId id, const Form& form) {
    if (const auto found = here_.find({id, form}); found != here_.end()) {
      return found->second;
    }
    const NodeId made = convert(id, form);
    return here_[{id, form}] = made;
  }

  NodeId convert(NodeId id, const Form& form) {
    const NodeId made = as_made(id);
    const HeldValue held = held_here(id);
    const bool whole = held.kind == HeldValue::Kind::whole;
    const bool partial = held.kind == HeldValue::Kind::partial;
    switch (form.kind) {
      case Form::Kind::as_made:
        break;
      case Form::Kind::whole:
        return whole     ? made
               : partial ? exchange(id, "sum", Exchanged::sum, made)
                         : exchange(id, "gather", Exchanged::gather, made, held.axis, held.bounds);
      case Form::Kind::use:
        if (!is_trained(id)) {
          return obtain(id, {Form::Kind::whole});
        }
        return whole     ? exchange(id, "use", Exchanged::use, made)
               : partial ? exchange(id, "sum_use", Exchanged::sum_and_use, made)
                         : exchange(id, "gather_use", Exchanged::gather_and_use, made, held.axis, held.bounds);
      case Form::Kind::sliced:
        if (is_sliced(held, form.axis) && held.bounds == form.bounds) {
          return made;
        }
        if (partial) {
          return exchange(id, "sum_slice", Exchanged::sum_slice, made, form.axis, form.bounds);
        }
        return exchange(id, "slice", Exchanged::slice, obtain(id, {Form::Kind::whole}), form.axis, form.bounds);
      case Form::Kind::rows:
        return rows(id, form);
    }
    return made;
  }

  /// The rows that each needs of an image.
  NodeId rows(NodeId id, const Form& form) {
    const HeldValue held = held_here(id);
    const bool by_rows = is_sliced(held, 2);
    if (by_rows) {
      bool same = true;
      for (std::size_t i = 0; i + 1 < held.bounds.size(); ++i) {
        same = same && form.rows[2 * i] == held.bounds[i] && form.rows[2 * i + 1] == held.bounds[i + 1];
      }
      if (same) {
        return as_made(id);
      }
    }
    HaloExchangeOptions options = {.whole = !by_rows,
                                   .bounds = by_rows ? held.bounds : Bounds{},
                                   .rows = graph_.node(id).output.shape[2],
                                   .position = position_};
    for (std::size_t i = 0; i < form.rows.size(); i += 2) {
      options.needed.push_back({form.rows[i], form.rows[i + 1], form.fill});
    }
    const NodeId source = by_rows ? as_made(id) : obtain(id, {Form::Kind::whole});
    return append(graph_.node(id), "halo", std::make_shared<HaloExchange>(std::move(options)), source);
  }

  /// In which form a node's layer needs an input.
  Form needed_form(NodeId id, NodeId input) const {
    const Node& node = graph_.node(id);
    const NodeWork& own = work_of(id);
    if (own.bounds.empty()) {
      return {Form::Kind::whole};
    }
    switch (partition_.cuts[static_cast<std::size_t>(id)]) {
      case Cut::none:
        break;
      case Cut::outputs:
        return {Form::Kind::use};
      case Cut::inputs:
        if (graph_.node(input).output.kind != ValueKind::dense) {
          break;
        }
        return {Form::Kind::sliced, 1, own.bounds};
      case Cut::channels:
        return {Form::Kind::sliced, 1, own.bounds};
      case Cut::region: {
        Form form = {Form::Kind::rows};
        for (int i = 0; i < partition_.tensor; ++i) {
          const RowsNeeded rows = node.layer->rows_needed(graph_.input_specs(id), slice_of(own.bounds, i));
          form.rows.insert(form.rows.end(), {rows.begin, rows.end});
          form.fill = rows.fill;
        }
        return form;
      }
    }
    return {Form::Kind::whole};
  }

  void add(NodeId id) {
    const Node& node = graph_.node(id);
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs) {
      inputs.push_back(obtain(input, needed_form(id, input)));
    }
    const NodeWork& own = work_of(id);
    LayerPart part;
    if (!own.bounds.empty()) {
      part = node.layer->part(partition_.cuts[static_cast<std::size_t>(id)], graph_.input_specs(id),
                              slice_of(own.bounds, position_));
    }
    const NodeId added = part_.add(node.name, part.layer == nullptr ? node.layer : part.layer, std::move(inputs));
    here_[{id, Form{}}] = added;
    add_parameters(id, added, part);
  }

  void add_parameters(NodeId id, NodeId added, const LayerPart& part) {
    const Node& node = graph_.node(id);
    const std::vector<ParameterSpec> whole_specs = node.layer->parameters(graph_.input_specs(id));
    for (const ParameterSpec& mine : part_.node(added).layer->parameters(part_.input_specs(added))) {
      ParameterSpec spec = *std::ranges::find(whole_specs, mine.name, &ParameterSpec::name);
      spec.shape = mine.shape;
      spec.row_floats = mine.row_floats;
      std::string name = parameter_name(node, spec);
      if (const auto found = std::ranges::find(part.parameters, mine.name, &ParameterPart::name);
          found != part.parameters.end()) {
        spec.part_axis = found->axis;
        spec.part = found->slice;
        if (found->partial_gradient) {
          partial_.push_back(name);
        }
      }
      const bool frozen = whole_.at(name).frozen;
      table_.add(name, std::move(spec));
      if (frozen) {
        frozen_.push_back(name);
      }
    }
  }

  void send(NodeId id) {
    for (int to = stage_ + 1; to < partition_.stages; ++to) {
      if (readers_.contains({id, to})) {
        const bool partial = work_of(id).made.kind == HeldValue::Kind::partial;
        append(graph_.node(id), "send",
               std::make_shared<SendValue>(SendValue::Options{.value = value_number(id, to), .stage = to}),
               obtain(id, {partial ? Form::Kind::whole : Form::Kind::as_made}));
      }
    }
  }

  /// Freezes what is frozen in the whole; the ranges whose gradients are partial sums.
  std::vector<Range> finish_table() {
    for (const std::string& name : frozen_) {
      table_.freeze(name);
    }
    std::vector<Range> ranges;
    for (const std::string& name : partial_) {
      ranges.push_back(table_.at(name).range);
    }
    return ranges;
  }

  const Graph& graph_;
  const ParameterTable& whole_;
  const Partition& partition_;
  const int stage_;
  const int position_;
  const std::vector<NodeWork> work_;
  std::vector<bool> trained_;
  std::set<std::pair<NodeId, int>> readers_;        ///< values, and which other stages read them
  std::map<std::pair<NodeId, Form>, NodeId> here_;  ///< where a value is found in the part, in which form
  std::set<std::string> names_;
  Graph part_;
  ParameterTable table_;
  std::vector<std::string> partial_;
  std::vector<std::string> frozen_;
};

}  // namespace

NetworkPart part_of(const Graph& graph, const ParameterTable& whole, const Partition& partition, int stage,
                    int position) {
  return PartBuilder(graph, whole, partition, stage, position).build();
}

}  // namespace distbelief
