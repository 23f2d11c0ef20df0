//! After a crash: what became of a write call whose outcome was not recorded. It never touches a file whose content
//! it does not know.

use std::path::Path;

use tenure_core::tool::{CallClass, FileChange, Intent};

use crate::{
    Blobs,
    replace::{self, Content, Like, digest},
    tool::on_disk,
    workspace::{Inside, Workspace},
};

/// Looks at the files of a write call's intent: all after, finished; all before, not started; a mix of both is rolled
/// back to before; anything else is unknown and left alone.
pub async fn classify(workspace: &Path, intent: &Intent, blobs: &dyn Blobs) -> CallClass {
    if intent.files.is_empty() {
        return CallClass::Unknown;
    }
    let Ok(states) = look(workspace, intent).await else { return CallClass::Unknown };
    if states.iter().all(|state| state.is_after) {
        return CallClass::Finished;
    }
    if states.iter().all(|state| state.is_before) {
        return CallClass::NotStarted;
    }
    if !states.iter().all(|state| state.is_before || state.is_after) {
        return CallClass::Unknown;
    }
    match roll_back(workspace, intent, &states, blobs).await {
        Ok(()) => CallClass::NotStarted,
        Err(error) => {
            tracing::warn!("a write call that a crash cut could not be rolled back: {error}");
            CallClass::Unknown
        }
    }
}

/// Which of its two known contents a file has. Both, where the call changes nothing.
struct State {
    is_before: bool,
    is_after: bool,
}

async fn look(workspace: &Path, intent: &Intent) -> Result<Vec<State>, String> {
    let (path, files) = (workspace.to_owned(), intent.files.clone());
    on_disk(move || {
        let workspace = Workspace::open(&path)?;
        // Every leftover goes, also when one file's state cannot be told.
        files.iter().for_each(|file| remove_leftovers(&workspace, file));
        files.iter().map(|file| state_of(&workspace, file)).collect()
    })
    .await
}

fn state_of(workspace: &Workspace, file: &FileChange) -> Result<State, String> {
    let path = recorded_path(workspace, file)?;
    let now = workspace.place(&path)?.current(&path)?.map(|found| digest(&found.bytes));
    Ok(State { is_before: now == file.before, is_after: now == file.after })
}

/// A path that is not in its one spelling was not recorded by us.
pub(crate) fn recorded_path(workspace: &Workspace, file: &FileChange) -> Result<Inside, String> {
    let path = workspace.inside(&file.path)?;
    if path.as_str() == file.path { Ok(path) } else { Err(format!("{} is not a recorded path", file.path)) }
}

fn remove_leftovers(workspace: &Workspace, file: &FileChange) {
    if let Ok(place) = recorded_path(workspace, file).and_then(|path| workspace.place(&path)) {
        for digest in [&file.before, &file.after].into_iter().flatten() {
            replace::remove_temporary(&place, digest);
        }
    }
}

/// Everything needed is at hand before the first file is touched.
async fn roll_back(path: &Path, intent: &Intent, states: &[State], blobs: &dyn Blobs) -> Result<(), String> {
    let mut work = vec![];
    for (file, _) in intent.files.iter().zip(states).filter(|(_, state)| !state.is_before) {
        work.push((file.clone(), old_bytes(file, blobs).await?));
    }
    let path = path.to_owned();
    on_disk(move || {
        let workspace = Workspace::open(&path)?;
        work.iter().try_for_each(|(file, bytes)| restore(&workspace, file, bytes.as_deref()))
    })
    .await
}

pub(crate) async fn old_bytes(file: &FileChange, blobs: &dyn Blobs) -> Result<Option<Vec<u8>>, String> {
    let Some(expected) = &file.before else { return Ok(None) };
    let name = file.old_bytes.as_deref().ok_or_else(|| format!("no old bytes of {} were kept", file.path))?;
    let bytes = blobs.get(name).await?.ok_or_else(|| format!("the old bytes of {} are gone", file.path))?;
    match digest(&bytes) == *expected {
        true => Ok(Some(bytes.to_vec())),
        false => Err(format!("the old bytes of {} are damaged", file.path)),
    }
}

fn restore(workspace: &Workspace, file: &FileChange, bytes: Option<&[u8]>) -> Result<(), String> {
    let path = recorded_path(workspace, file)?;
    let place = workspace.place(&path)?;
    match bytes {
        None => replace::remove(&place, &path),
        Some(bytes) => {
            let owner = place.current(&path)?.map(|found| found.owner);
            let like = Like::Restored { mode: file.mode, owner };
            replace::put(&place, &path, &Content { bytes, like }).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replace::temporary_name;
    use tenure_core::tool::Artifact;

    struct NoBlobs;

    #[async_trait::async_trait]
    impl Blobs for NoBlobs {
        async fn put(&self, _name: &str, _bytes: bytes::Bytes) -> Result<Artifact, String> {
            Err("not here".into())
        }

        async fn get(&self, _name: &str) -> Result<Option<bytes::Bytes>, String> {
            Ok(None)
        }
    }

    #[tokio::test]
    async fn a_leftover_of_this_write_goes_and_any_other_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (before, after) = (digest(b"1"), digest(b"2"));
        let [ours, back, other] = [&after, &before, &digest(b"3")].map(|digest| temporary_name("f", digest));
        for (name, text) in [("f", "1"), (&ours, "half"), (&back, ""), (&other, "")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let file = FileChange { path: "f".into(), before: Some(before), after: Some(after), ..FileChange::default() };
        let class = classify(folder.path(), &Intent { files: vec![file], folders: vec![] }, &NoBlobs).await;
        assert_eq!(class, CallClass::NotStarted);
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [other.as_str(), "f"]);
    }
}
