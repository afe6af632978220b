#pragma once

#include <string>
#include <string_view>

namespace distbelief {

/// Text as it may stand in HTML, between tags and inside quoted attributes.
std::string escape_html(std::string_view text);

/// JSON as it may stand inside a <script> element: nothing in it can end the element.
std::string escape_script_json(std::string_view json);

}  // namespace distbelief
