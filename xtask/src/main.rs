//! Chores of the repository, run as `cargo xtask`. It holds no logic of the project itself.

mod install;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
Chores of this repository.

Usage: cargo xtask <chore>

Chores:
  test           what CI runs: format, lints, docs, all tests; stops at the first that fails
  test --quick   the same without building the docs

What a chore needs and does not find, it installs and says so: rustfmt and clippy by
rustup, cargo-nextest by cargo, git, make and strace by apt-get on Debian and the like.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["test"] => test::run(test::Extent::All),
        ["test", "--quick"] => test::run(test::Extent::Quick),
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
