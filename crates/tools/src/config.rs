//! What the tools are told by the program that puts them together. Nothing is read from a file here.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use tenure_core::redact::is_secret_name;

/// How the built-in tools start and keep track of processes.
#[derive(Debug, Clone)]
pub struct ToolsConfig {
    /// The program that serves as supervisor: the daemon's own binary.
    pub supervisor: PathBuf,
    /// Its arguments: the hidden mode, [`crate::SUPERVISE_ARG`].
    pub supervisor_args: Vec<OsString>,
    /// Where running supervisors are recorded: `<data>/processes`.
    pub ledger: PathBuf,
    /// Tells this data folder's processes from those of any other.
    pub mark: String,
    /// For a `shell` call that names no time limit.
    pub shell_timeout: Duration,
    /// For each command of a `verify` call.
    pub verify_timeout: Duration,
    /// Variables that commands never see, beside those whose name looks like a secret's.
    pub scrub: Vec<String>,
    /// What commands see as their environment, before scrubbing.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether `fetch_url` may speak to addresses that are not public.
    pub fetch_private: crate::PrivateAddresses,
    /// Whether to try a pid namespace. Without one, descendants are found by walking `/proc`.
    pub namespaces: bool,
    /// Where it is kept what the sources of workspaces define; a cache.
    pub outline_cache: Option<PathBuf>,
}

impl ToolsConfig {
    /// The usual settings; commands inherit this process's environment, scrubbed.
    pub fn new(supervisor: impl Into<PathBuf>, ledger: impl Into<PathBuf>, mark: impl Into<String>) -> Self {
        Self {
            supervisor: supervisor.into(),
            supervisor_args: vec![crate::SUPERVISE_ARG.into()],
            ledger: ledger.into(),
            mark: mark.into(),
            shell_timeout: Duration::from_secs(120),
            verify_timeout: crate::TIMEOUT_MAX,
            scrub: vec![],
            environment: std::env::vars_os().collect(),
            fetch_private: crate::PrivateAddresses::Refused,
            namespaces: true,
            outline_cache: None,
        }
    }

    /// The environment of every command, without what looks secret or is named in `scrub`.
    pub(crate) fn scrubbed_environment(&self) -> Vec<(OsString, OsString)> {
        let keep = |name: &OsString| {
            let name = name.to_string_lossy();
            !is_secret_name(&name) && !self.scrub.iter().any(|scrubbed| scrubbed.as_str() == name)
        };
        let ours = |name: &OsString| name == crate::MARK_VARIABLE || name == crate::CALL_VARIABLE;
        let kept = self.environment.iter().filter(|(name, _)| keep(name) && !ours(name));
        kept.cloned().chain([(crate::MARK_VARIABLE.into(), OsString::from(&self.mark))]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_named_variables_are_left_out_and_the_mark_is_set() {
        let mut config = ToolsConfig::new("/bin/true", "/nowhere", "m1");
        config.scrub = vec!["PLAIN_BUT_PRIVATE".into()];
        config.environment =
            [("PATH", "/bin"), ("API_KEY", "x"), ("PLAIN_BUT_PRIVATE", "x"), ("TENURE_MARK", "other"), ("LANG", "C")]
                .map(|(name, value)| (name.into(), value.into()))
                .to_vec();
        let expected = [("PATH", "/bin"), ("LANG", "C"), ("TENURE_MARK", "m1")];
        assert_eq!(config.scrubbed_environment(), expected.map(|(name, value)| (name.into(), value.into())).to_vec());
    }
}
