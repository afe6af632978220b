#pragma once

#include <span>
#include <string>
#include <string_view>

namespace distbelief {

/// The name that takes the fewest edits (a letter, or two neighbours swapped) to become `wanted`; the first of
/// equals, empty if there are none.
std::string_view nearest_name(std::string_view wanted, std::span<const std::string_view> names);

/// Whether `written` is so close to `name` that it is most likely meant: one edit for every three letters, or one.
/// Dashes in front do not count as letters.
bool is_misspelling(std::string_view written, std::string_view name);

/// For the end of a message about an unknown name: "; did you mean 'adam'?", or nothing if no name is close.
std::string did_you_mean(std::string_view wanted, std::span<const std::string_view> names);

/// "sgd, momentum, adam".
std::string listed(std::span<const std::string_view> names);

}  // namespace distbelief
