//! Files of the data folder that are not the store's: a daemon does not start while one of them is damaged.

use std::path::Path;

use tenure_store::upkeep::{Action, Finding, Level, Remedy};

use crate::{
    data,
    exit::Problem,
    remote::Files,
    standing::{self, FileStanding},
};

struct Beside {
    name: &'static str,
    /// What keeps a daemon from starting.
    problem: Problem,
    /// The whole file as it was, where one turned bit explains what is wrong with it.
    mended: Option<Vec<u8>>,
}

fn damaged(data: &Path) -> impl Iterator<Item = Beside> {
    let tokens = Files(data.to_owned()).look().err();
    let tokens = tokens.map(|problem| (Files::TOKENS, problem, tenure_server::mend_tokens as fn(&[u8]) -> _));
    let always = FileStanding::open(data).err();
    let always = always.map(|problem| (standing::FILE, problem, standing::mend as fn(&[u8]) -> _));
    tokens.into_iter().chain(always).map(|(name, problem, mend)| {
        let bytes = data::read_plain(&data.join(name), tenure_server::MEND_BYTES_MAX).ok().flatten();
        Beside { name, problem, mended: bytes.and_then(|bytes| mend(&bytes)) }
    })
}

pub fn findings(data: &Path) -> impl Iterator<Item = Finding> {
    damaged(data).map(|Beside { name, problem, mended }| Finding {
        path: name.into(),
        session_id: None,
        level: Level::Damage,
        what: format!("{problem}; {}", problem.hint()),
        remedy: if mended.is_some() { Remedy::Repair } else { Remedy::None },
    })
}

/// Mends what can be mended, or only tells of it.
pub fn repair(data: &Path, dry_run: bool) -> anyhow::Result<Vec<Action>> {
    let mut actions = Vec::new();
    for Beside { name, mended, .. } in damaged(data) {
        let Some(mended) = mended else { continue };
        if !dry_run {
            data::replace(&data.join(name), &mended, data::Keep::Synced)?;
        }
        actions.push(Action { path: name.into(), session_id: None, what: "mended: one bit had changed".into() });
    }
    Ok(actions)
}
