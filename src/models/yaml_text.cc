#include "models/yaml_text.h"

#include <yaml-cpp/eventhandler.h>

#include <sstream>

#include "base/error.h"
#include "models/layer_attributes.h"

namespace distbelief {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

class IgnoreEvents : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}
};

/// YAML::LoadAll() would tell, but never returns for some broken texts, such as ", a"; YAML::Load() ignores all that
/// comes after the first document, or after what it takes for its end.
void expect_one_document(const std::string& text, const std::string& file) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  IgnoreEvents ignore;
  if (!parser.HandleNextDocument(ignore)) {
    throw FileError(fmt::format("{}: expected one YAML document, got none", file));
  }
  if (parser.HandleNextDocument(ignore)) {
    throw FileError(fmt::format("{}: expected one YAML document, got more, or signs that belong nowhere", file));
  }
}

}  // namespace

YAML::Node load_yaml(std::string_view text, const std::string& file) {
  if (text.size() > kMaxBytes) {
    throw FileError(fmt::format("{}: {} bytes are too many, at most {} are read", file, text.size(), kMaxBytes));
  }
  try {
    const std::string copy(text);
    expect_one_document(copy, file);
    return YAML::Load(copy);
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 0 : error.mark.line + 1;
    throw FileError(fmt::format("{}: this is not YAML: {}", file_place(file, line), one_line(error.msg)));
  }
}

int yaml_line(const YAML::Node& node) { return node.Mark().is_null() ? 0 : node.Mark().line + 1; }

}  // namespace distbelief
