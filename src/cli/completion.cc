#include "cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace tandem::cli {
namespace {

// All commands, each before those below it.
void collect(const CommandOutline& command, std::vector<const CommandOutline*>& all) {
  all.push_back(&command);
  for (const CommandOutline& inner : command.commands) {
    collect(inner, all);
  }
}

std::vector<const CommandOutline*> all_commands(const CommandOutline& program) {
  std::vector<const CommandOutline*> all;
  collect(program, all);
  return all;
}

// Inside single quotes, for both shells.
std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

std::vector<std::string> flags_of(const CommandOutline& command) {
  std::vector<std::string> flags;
  for (const OptionOutline& option : command.options) {
    flags.insert(flags.end(), option.flags.begin(), option.flags.end());
  }
  return flags;
}

// What may stand where no flag begins: subcommands, or the choices of values by place.
std::vector<std::string> words_of(const CommandOutline& command) {
  std::vector<std::string> words;
  for (const CommandOutline& inner : command.commands) {
    words.push_back(inner.name);
  }
  for (const OptionOutline& option : command.options) {
    if (!option.place.empty()) {
      words.insert(words.end(), option.choices.begin(), option.choices.end());
    }
  }
  return words;
}

// The patterns of a case of bash: "tandem serve --port"|"tandem serve -p".
std::string bash_patterns(const CommandOutline& command, const OptionOutline& option) {
  std::vector<std::string> patterns;
  for (const std::string& flag : option.flags) {
    patterns.push_back(fmt::format("\"{} {}\"", command.path, flag));
  }
  return fmt::format("{}", fmt::join(patterns, "|"));
}

std::string bash_words(const std::vector<std::string>& words) {
  return fmt::format("COMPREPLY=($(compgen -W {} -- \"$word\"))",
                     single_quoted(fmt::format("{}", fmt::join(words, " "))));
}

// The cases of flags before the word that is completed. Texts get no case: their completion is that
// of file names, which is bash's own.
std::string bash_values(const std::vector<const CommandOutline*>& commands) {
  std::string cases;
  std::vector<std::string> numbers;
  std::vector<std::string> texts;
  for (const CommandOutline* command : commands) {
    for (const OptionOutline& option : command->options) {
      if (option.flags.empty() || option.value == ValueKind::kNone) {
        continue;
      }
      const std::string patterns = bash_patterns(*command, option);
      if (option.value == ValueKind::kChoice) {
        cases += fmt::format("    {}) {}; return ;;\n", patterns, bash_words(option.choices));
      } else {
        (option.value == ValueKind::kNumber ? numbers : texts).push_back(patterns);
      }
    }
  }
  if (!numbers.empty()) {
    cases +=
        fmt::format("    {}) compopt +o default; return ;;\n", fmt::join(numbers, "|\\\n    "));
  }
  if (!texts.empty()) {
    cases += fmt::format("    {}) return ;;\n", fmt::join(texts, "|\\\n    "));
  }
  return cases;
}

// A text between brackets of _arguments, or after a colon.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out;
}

std::string zsh_value(const OptionOutline& option) {
  switch (option.value) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kNumber:
      return ":number: ";
    case ValueKind::kText:
      return ":value:_files";
    case ValueKind::kChoice:
      break;
  }
  return fmt::format(":value:({})", fmt::join(option.choices, " "));
}

// The specifications of an option for _arguments, each in quotes.
std::vector<std::string> zsh_options(const OptionOutline& option) {
  std::vector<std::string> specs;
  for (const std::string& flag : option.flags) {
    const bool is_long = flag.starts_with("--");
    const std::string_view joint = option.value == ValueKind::kNone ? "" : is_long ? "=" : "+";
    const std::string others =
        option.takes_many ? "*" : fmt::format("({})", fmt::join(option.flags, " "));
    specs.push_back(single_quoted(fmt::format("{}{}{}[{}]{}", others, flag, joint,
                                              zsh_text(option.help), zsh_value(option))));
  }
  if (!option.place.empty()) {
    specs.push_back(single_quoted(fmt::format(
        "{}:{}{}", option.takes_many ? "*" : "", zsh_text(option.place),
        option.value == ValueKind::kChoice ? fmt::format(":({})", fmt::join(option.choices, " "))
                                           : ":_files")));
  }
  return specs;
}

// "tandem bench kernels": "_tandem_bench_kernels".
std::string zsh_function(const CommandOutline& command) {
  std::string name = "_" + command.path;
  std::ranges::replace(name, ' ', '_');
  return name;
}

std::string zsh_command(const CommandOutline& command) {
  std::string out = zsh_function(command) + "() {\n";
  std::vector<std::string> specs;
  for (const OptionOutline& option : command.options) {
    const std::vector<std::string> more = zsh_options(option);
    specs.insert(specs.end(), more.begin(), more.end());
  }
  if (command.commands.empty()) {
    return out + fmt::format("  _arguments -s \\\n    {}\n}}\n\n", fmt::join(specs, " \\\n    "));
  }
  specs.emplace_back("'1:command:->command'");
  specs.emplace_back("'*::argument:->argument'");
  out += "  local state line\n  typeset -A opt_args\n";
  out += fmt::format("  _arguments -C -s \\\n    {}\n", fmt::join(specs, " \\\n    "));
  out += "  case $state in\n    command)\n      local -a commands\n      commands=(\n";
  for (const CommandOutline& inner : command.commands) {
    out += fmt::format("        {}\n", single_quoted(inner.name + ":" + zsh_text(inner.help)));
  }
  out += "      )\n      _describe command commands ;;\n    argument)\n      case $line[1] in\n";
  for (const CommandOutline& inner : command.commands) {
    out += fmt::format("        {}) {} ;;\n", inner.name, zsh_function(inner));
  }
  return out + "      esac ;;\n  esac\n}\n\n";
}

}  // namespace

std::string bash_completion(const CommandOutline& program) {
  const std::vector<const CommandOutline*> commands = all_commands(program);
  std::vector<std::string> paths;
  std::string words;
  for (const CommandOutline* command : commands) {
    if (command != &program) {
      paths.push_back(fmt::format("\"{}\"", command->path));
    }
    words +=
        fmt::format("    \"{} flags\") {} ;;\n", command->path, bash_words(flags_of(*command)));
    if (const std::vector<std::string> after = words_of(*command); !after.empty()) {
      words += fmt::format("    \"{} words\") {} ;;\n", command->path, bash_words(after));
    }
  }
  return fmt::format(
      R"(# bash completion of {0}, written by `{0} completion bash`
_{0}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} path={0} kind=words i
  COMPREPLY=()
  # --flag=value comes as three words.
  if [[ $word == = ]]; then
    word=
  elif [[ $before == = ]]; then
    before=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {1}) path+=" ${{COMP_WORDS[i]}}" ;;
      *) break ;;
    esac
  done
  case "$path $before" in
{2}  esac
  if [[ $word == -* ]]; then kind=flags; fi
  case "$path $kind" in
{3}  esac
}}
complete -o default -F _{0} {0}
)",
      program.name, fmt::join(paths, "|"), bash_values(commands), words);
}

std::string zsh_completion(const CommandOutline& program) {
  std::string out = fmt::format(
      "#compdef {0}\n# zsh completion of {0}, written by `{0} completion zsh`\n\n", program.name);
  for (const CommandOutline* command : all_commands(program)) {
    out += zsh_command(*command);
  }
  return out + fmt::format(
                   "if [ \"$funcstack[1]\" = _{0} ]; then\n  _{0} \"$@\"\nelse\n  compdef "
                   "_{0} {0}\nfi\n",
                   program.name);
}

}  // namespace tandem::cli
