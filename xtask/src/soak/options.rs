//! What `cargo xtask soak` can be told.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

pub const HELP: &str = "\
Soak and load: hundreds of sessions on a real daemon that is killed again and again.

Usage: cargo xtask soak [--minutes N] [--sessions N] [--seed N] [--binary PATH]

  --minutes N     how long the load lasts, such as 0.5 or 60; the checks come after it [default: 10]
  --sessions N    how many sessions are alive at one time [default: 300]
  --seed N        repeats the choices of a run that printed this seed; its timing cannot be repeated
  --binary PATH   a tenure binary to try, instead of building one

A release daemon with default durability serves drivers (messages, steering, approvals,
cancels, resumes, retries, ends) and watchers (from anywhere, slow, stalled, cut).

  first 45 %   SIGKILL every 2 to 6 s, some while the daemon recovers, and now and then SIGTERM
  next 50 %    calm: one life of the daemon under the same load, with points of rest
  last 5 %     kills again; then all is settled, killed once more, started and checked

Checked at the end, for every session: each acknowledged command is in the log once, and its key
gets the same answer again; each connection was given an unbroken piece of what a fresh reader is
given; each turn is settled, each call has one result, each approval one answer; each command ran
at most once and never without an intent, and exactly once where its outcome is known; files hold
what was last written. On the way: no process outlives `turn_canceled`, its daemon or a rest.

Growth is judged at the points of rest of the calm phase, where no turn is open, nobody watches,
every session has been put out of memory, and the daemon has had the time to give memory back and to
end idle threads: the median of the last quarter may be at most 5 % above that of the third one. Below
that, 1 MB of memory (4 MB in a run of less than about 10 minutes, which ends before the allocator has
found its level) and 4 files, threads or processes are noise. Kept on purpose and not counted: 1 KB for
each session made in between, its row in the list and its key, and up to 256 open logs. Memory, files,
threads and processes under load are shown, but depend on what runs at that instant. After it, 100
watchers that never read are put on a reply of 3.5 MB: each may cost 512 KB, beside 16 copies of the
reply for the daemon itself.

Exits with 1 and keeps its folder if anything was found. Clients keep what they were shown in
memory: about 40 KB for each turn of a run.
";

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub minutes: f64,
    pub sessions: usize,
    pub seed: Option<u64>,
    pub binary: Option<PathBuf>,
}

/// A week.
const MINUTES_MAX: f64 = 7.0 * 24.0 * 60.0;
/// Below this not even one kill and one rest would fit.
const MINUTES_MIN: f64 = 0.25;
const SESSIONS_MAX: usize = 100_000;

impl Options {
    pub fn read(words: &[&str]) -> Result<Options> {
        let mut options = Options { minutes: 10.0, sessions: 300, seed: None, binary: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().with_context(|| format!("{word} needs a value"));
            match *word {
                "--minutes" => options.minutes = number(word, value()?)?,
                "--sessions" => options.sessions = number(word, value()?)?,
                "--seed" => options.seed = Some(number(word, value()?)?),
                "--binary" => options.binary = Some(value()?.into()),
                other => bail!("soak has no option `{other}`; see cargo xtask soak --help"),
            }
        }
        if !(MINUTES_MIN..=MINUTES_MAX).contains(&options.minutes) {
            bail!("--minutes is between {MINUTES_MIN} and {MINUTES_MAX}");
        }
        if !(1..=SESSIONS_MAX).contains(&options.sessions) {
            bail!("--sessions is between 1 and {SESSIONS_MAX}");
        }
        if let Some(binary) = options.binary.as_ref().filter(|path| !path.is_file()) {
            bail!("--binary: there is no file {}", binary.display());
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr>(option: &str, value: &str) -> Result<T> {
    value.parse().ok().with_context(|| format!("{option} takes a number, not `{value}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options() {
        let read = |line: &str| Options::read(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(read("").unwrap().minutes, 10.0);
        let all = read("--minutes 0.5 --sessions 9 --seed 7").unwrap();
        assert_eq!(all, Options { minutes: 0.5, sessions: 9, seed: Some(7), binary: None });
        for bad in
            ["--minutes", "--minutes x", "--minutes 0", "--minutes nan", "--sessions 0", "--fast", "--binary /no/such"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
