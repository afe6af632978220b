#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "commands.h"

int main(int argc, char** argv) {
  using namespace distbelief;
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  Terminal terminal;
  terminal.is_terminal = ::isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
  terminal.color = terminal.is_terminal && (no_color == nullptr || *no_color == '\0');

  int exit_code = 0;
  CLI::App app("Trains neural networks on one machine or many.", "distbelief");
  app.set_version_flag("--version", "distbelief " DISTBELIEF_VERSION);
  app.require_subcommand(1);
  add_train_command(app, terminal, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "distbelief: {}; see distbelief --help\n", error.what());
    return 2;
  } catch (const Error& error) {
    fmt::print(stderr, "distbelief: {}\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "distbelief: out of memory\n");
    return 1;
  }
  return exit_code;
}
