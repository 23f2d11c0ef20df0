//! Answers given for always, in a file of the data folder. They hold in every session made from then on.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use tenure_core::policy::Rule;
use tenure_engine::Standing;

use crate::{data, exit::Problem};

pub const FILE: &str = "always.json";
/// The most that answers can come to.
const BYTES_MAX: u64 = 16 << 20;

pub struct FileStanding {
    path: PathBuf,
    rules: Mutex<Vec<Rule>>,
}

impl FileStanding {
    /// Reads the rules given so far. A file that cannot be understood is refused: nothing is allowed or forgotten by mistake.
    pub fn open(data: &Path) -> Result<Self, Problem> {
        let path = data.join(FILE);
        let hint = "`tenure store repair` mends one turned bit; else mend the file yourself, or remove it to forget all \
                    answers given for always";
        let refused = |why: String| Problem::usage(format!("{}{why}", path.display()), hint);
        let rules = match data::read_plain(&path, BYTES_MAX).map_err(|error| refused(format!(": {error}")))? {
            Some(bytes) => read(&bytes).map_err(refused)?,
            None => vec![],
        };
        Ok(Self { path, rules: Mutex::new(rules) })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    rules: Vec<Rule>,
    /// Of the rules: no turned bit allows what nobody has allowed.
    sum: String,
}

/// What `written` made, or a bare list that a person wrote.
fn read(bytes: &[u8]) -> Result<Vec<Rule>, String> {
    let told = |error: serde_json::Error| format!(":{}: {error}", error.line());
    if bytes.trim_ascii_start().starts_with(b"[") {
        return serde_json::from_slice(bytes).map_err(told);
    }
    let Sealed { rules, sum } = serde_json::from_slice(bytes).map_err(told)?;
    match sum_of(&rules).is_ok_and(|right| right == sum) {
        true => Ok(rules),
        false => {
            Err(": its sum does not fit: the disk has changed it; if you did, leave only the list of rules".into())
        }
    }
}

/// The file as it was, where one turned bit explains what is wrong with it.
pub fn mend(bytes: &[u8]) -> Option<Vec<u8>> {
    // A bare list has no sum that could tell.
    tenure_server::mend_bit(bytes, |bytes| !bytes.trim_ascii_start().starts_with(b"[") && read(bytes).is_ok())
}

fn written(rules: &[Rule]) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec_pretty(&Sealed { rules: rules.to_vec(), sum: sum_of(rules)? })
}

fn sum_of(rules: &[Rule]) -> serde_json::Result<String> {
    Ok(tenure_server::sum_of(&serde_json::to_vec(rules)?))
}

impl Standing for FileStanding {
    fn rules(&self) -> Vec<Rule> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, rule: Rule) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if rules.contains(&rule) {
            return;
        }
        rules.push(rule);
        let kept = written(&rules)
            .map_err(anyhow::Error::from)
            .and_then(|bytes| data::replace(&self.path, &bytes, data::Keep::Synced));
        if let Err(error) = kept {
            tracing::warn!("an answer given for always holds until the daemon ends: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_kept_and_bad_files_refused() {
        let data = tempfile::tempdir().unwrap();
        let rule: Rule =
            serde_json::from_str(r#"{"tool": "shell", "pattern": "make test", "action": "allow"}"#).unwrap();
        let standing = FileStanding::open(data.path()).unwrap();
        standing.add(rule.clone());
        standing.add(rule.clone());
        assert_eq!(FileStanding::open(data.path()).unwrap().rules(), vec![rule]);
        std::fs::write(data.path().join(FILE), "[{").unwrap();
        assert!(FileStanding::open(data.path()).is_err());
    }

    #[test]
    fn no_turned_bit_changes_what_is_allowed() {
        let rule = r#"{"tool": "shell", "pattern": "make test", "action": "allow"}"#;
        let rules: Vec<Rule> = vec![serde_json::from_str(rule).unwrap()];
        let good = written(&rules).unwrap();
        for at in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            // Blanks between words mean nothing.
            assert!(read(&bytes).is_ok_and(|read| read == rules) || read(&bytes).is_err(), "bit {at}");
            if at % 29 == 0 {
                assert_eq!(read(&mend(&bytes).unwrap()), Ok(rules.clone()), "bit {at}");
            }
        }
        assert_eq!(read(format!("[{rule}]").as_bytes()).unwrap(), rules);
        assert_eq!(mend(format!("[{rule}").as_bytes()), None, "nothing tells what was there");
    }
}
