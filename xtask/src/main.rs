//! Chores of the repository, run as `cargo xtask`. It holds no logic of the project itself.

mod bench;
mod crash;
mod daemon;
mod http;
mod install;
mod mcp_tools;
mod reader;
mod real_model;
mod schemathesis;
mod simulate;
mod soak;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
Chores of this repository.

Usage: cargo xtask <chore>

Chores:
  test           what CI runs: format, lints, docs, all tests, a short crash matrix, a short schemathesis,
                 real MCP servers, a real model; stops at the first that fails
  test --quick   the same without building the docs
  crash          harms a real daemon at every instant of a turn and checks every promise
  simulate       the seeded trials of the tests in their full form
  schemathesis   holds a real daemon against its own description; see cargo xtask schemathesis --help
  real-model     a real daemon with a real language model; see cargo xtask real-model --help
  mcp-tools      a real daemon with real MCP servers from npm; see cargo xtask mcp-tools --help
  bench          measures the daemon beside the bare machine; see cargo xtask bench --help
  soak           hundreds of sessions on a daemon that is killed all the time; see cargo xtask soak --help

What a chore needs and does not find, it installs and says so: rustfmt and clippy by
rustup, cargo-nextest by cargo, chromium, curl, git, jq, make, strace and python3-venv by
apt-get on Debian and the like, schemathesis and the real model by pip
and MCP servers by npm into target/.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["test"] => test::run(test::Extent::All),
        ["crash", "--help" | "-h"] => {
            print!("{}", crash::HELP);
            Ok(())
        }
        ["crash", ref options @ ..] => crash::Request::parse(options).and_then(|request| crash::run(&request)),
        [crash::INNER, ref rest @ ..] => return crash::inner(rest),
        ["simulate", "--help" | "-h"] => {
            print!("{}", simulate::HELP);
            Ok(())
        }
        ["simulate", ref options @ ..] => simulate::Request::parse(options).and_then(simulate::run),
        ["schemathesis", "--help" | "-h"] => {
            print!("{}", schemathesis::HELP);
            Ok(())
        }
        ["schemathesis", ref options @ ..] => schemathesis::Request::parse(options).and_then(schemathesis::run),
        ["real-model", "--help" | "-h"] => {
            print!("{}", real_model::HELP);
            Ok(())
        }
        ["real-model"] => real_model::run(),
        ["mcp-tools", "--help" | "-h"] => {
            print!("{}", mcp_tools::HELP);
            Ok(())
        }
        ["mcp-tools"] => mcp_tools::run(),
        ["bench", ref flags @ ..] => bench::run(flags),
        [bench::BUILT_WORD, ref flags @ ..] => bench::measure(flags),
        ["test", "--quick"] => test::run(test::Extent::Quick),
        ["soak", "--help" | "-h"] => {
            print!("{}", soak::HELP);
            Ok(())
        }
        ["soak", ref options @ ..] => soak::run(options),
        [] | ["help" | "--help" | "-h"] | ["test", "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => {
            eprint!("xtask: no chore is called `{}`.\n\n{HELP}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
