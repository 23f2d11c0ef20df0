//! Answers given for always, in a file of the data folder. They hold in every session made from then on.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

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
        let hint = "mend the file, or remove it to forget all answers given for always";
        let refused = |why: String| Problem::usage(format!("{}{why}", path.display()), hint);
        let rules = match data::read_plain(&path, BYTES_MAX).map_err(|error| refused(format!(": {error}")))? {
            Some(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| refused(format!(":{}: {error}", error.line())))?
            }
            None => vec![],
        };
        Ok(Self { path, rules: Mutex::new(rules) })
    }
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
        let kept = serde_json::to_vec_pretty(&*rules)
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
}
