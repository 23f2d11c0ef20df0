//! Which command lines a shell would do nothing with but run a program: for these the shell's own start, which takes
//! longer than many a command, is left out. In doubt a line is not plain.

use std::ffi::OsString;

/// What bash takes for its own where a program's name is expected; other shells know some of these and no more.
#[rustfmt::skip]
const OWN_WORDS: &[&str] = &[
    ".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "case", "cd", "command", "compgen", "complete",
    "compopt", "continue", "coproc", "declare", "dirs", "disown", "do", "done", "echo", "elif", "else", "enable", "esac",
    "eval", "exec", "exit", "export", "false", "fc", "fg", "fi", "for", "function", "getopts", "hash", "help", "history",
    "if", "in", "jobs", "kill", "let", "local", "logout", "mapfile", "popd", "printf", "pushd", "pwd", "read",
    "readarray", "readonly", "return", "select", "set", "shift", "shopt", "source", "suspend", "test", "then", "time",
    "times", "trap", "true", "type", "typeset", "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
];

/// Whether a shell with this environment takes its programs from the `PATH` and nothing from elsewhere: functions,
/// start-up files and options can come from the environment too.
pub(crate) fn is_ordinary(environment: &[(OsString, OsString)]) -> bool {
    let named = |wanted: fn(&str) -> bool| environment.iter().any(|(name, _)| name.to_str().is_none_or(wanted));
    environment.iter().any(|(name, _)| name == "PATH")
        && !named(|name| name.starts_with("BASH") || matches!(name, "SHELLOPTS" | "ENV" | "POSIXLY_CORRECT"))
}

/// The words of a line that is a program's name and its arguments, without anything that a shell gives a meaning to.
pub(crate) fn words(line: &str) -> Option<Vec<String>> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b" _@%+:,./=-".contains(&byte);
    if !line.bytes().all(harmless) {
        return None;
    }
    let words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let program = words.first()?;
    let is_program = !program.contains('=') && !program.starts_with('%') && !OWN_WORDS.contains(&program.as_str());
    is_program.then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_and_plain_arguments_are_plain() {
        for (line, expected) in [
            ("/bin/true", Some(vec!["/bin/true"])),
            ("  cargo  test --workspace -q ", Some(vec!["cargo", "test", "--workspace", "-q"])),
            ("env A=b make CC=gcc:1,2 x@y +z 50%", Some(vec!["env", "A=b", "make", "CC=gcc:1,2", "x@y", "+z", "50%"])),
            ("", None),
            ("   ", None),
            ("A=b make", None),
            ("%1", None),
            ("cd src", None),
            ("echo hi", None),
            ("time make", None),
            ("ls\tx", None),
            ("ls\nls", None),
            ("ls héllo", None),
        ] {
            assert_eq!(words(line), expected.map(|words| words.into_iter().map(String::from).collect()), "{line:?}");
        }
        for special in "|&;<>()$`\\\"'*?[]#~{}!^\n\t\r\0".chars() {
            assert_eq!(words(&format!("ls a{special}b")), None, "{special:?}");
        }
    }

    #[test]
    fn words_of_the_shell_that_is_here_are_known() {
        let Ok(output) = std::process::Command::new("bash").args(["-c", "compgen -b -k"]).output() else { return };
        for word in String::from_utf8(output.stdout).unwrap().lines() {
            assert_eq!(words(word), None, "{word}");
        }
    }

    #[test]
    fn what_a_shell_takes_from_the_environment_keeps_it() {
        let with = |more: &[(&str, &str)]| {
            let all = [("PATH", "/bin")].iter().chain(more).map(|(name, value)| (name.into(), value.into()));
            is_ordinary(&all.collect::<Vec<_>>())
        };
        assert!(with(&[]) && with(&[("HOME", "/root"), ("PWD", "/")]));
        for name in ["BASH_ENV", "BASH_FUNC_ls%%", "BASHOPTS", "SHELLOPTS", "ENV", "POSIXLY_CORRECT"] {
            assert!(!with(&[(name, "x")]), "{name}");
        }
        assert!(!is_ordinary(&[("HOME".into(), "/".into())]));
    }
}
