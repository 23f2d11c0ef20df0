//! Takes back what a turn did to files: all of it or nothing, and only where every file is what the turn left. It never
//! touches a file that the turn did not change.

use std::{path::Path, path::PathBuf, sync::Arc};

use bytes::Bytes;
use tenure_core::{
    command::FailedRestore,
    event::{CheckpointCreated, RefusedFile},
    tool::{CallClass, FileChange, Intent},
};

use crate::{
    Blobs,
    classify::{classify, old_bytes, recorded_path},
    replace::{self, Content, Like, digest},
    tool::on_disk,
    workspace::{Found, Inside, Place, Workspace},
};

/// A turn's changes that are to be taken back.
#[derive(Clone)]
pub struct Restore {
    workspace: PathBuf,
    files: Vec<FileChange>,
    folders: Vec<String>,
    blobs: Arc<dyn Blobs>,
    /// How the names begin under which the files are kept as the turn left them.
    kept_as: String,
}

impl Restore {
    pub fn new(checkpoint: &CheckpointCreated, blobs: Arc<dyn Blobs>, kept_as: String) -> Self {
        Self {
            workspace: PathBuf::from(&checkpoint.workspace_path),
            files: checkpoint.files.clone(),
            folders: checkpoint.folders.clone(),
            blobs,
            kept_as,
        }
    }

    /// What it would do; the files are kept as they are now before it is returned. Every file that is in the way is named.
    pub async fn prepare(&self) -> Result<Intent, Vec<RefusedFile>> {
        let (mut intent, mut refused) = (Intent::default(), vec![]);
        for (at, file) in self.files.iter().enumerate() {
            match self.prepare_file(file, at).await {
                Ok(inverse) => intent.files.push(inverse),
                Err(why) => refused.push(RefusedFile { path: file.path.clone(), why }),
            }
        }
        if refused.is_empty() { Ok(intent) } else { Err(refused) }
    }

    async fn prepare_file(&self, file: &FileChange, at: usize) -> Result<FileChange, String> {
        let now = self.look(file).await?;
        let mode = now.as_ref().map(|found| found.mode);
        let mut kept = None;
        old_bytes(file, &*self.blobs).await?;
        if let Some(found) = now {
            let name = format!("{}-{at}.old", self.kept_as);
            self.blobs.put(&name, Bytes::from(found.bytes)).await?;
            kept = Some(name);
        }
        Ok(FileChange {
            path: file.path.clone(),
            before: file.after.clone(),
            after: file.before.clone(),
            old_bytes: kept,
            mode,
            mode_after: None,
            real: file.real.clone(),
        })
    }

    async fn look(&self, file: &FileChange) -> Result<Option<Found>, String> {
        let (path, file) = (self.workspace.clone(), file.clone());
        on_disk(move || as_left(&Workspace::open(&path)?, &file).map(|(_, _, now)| now)).await
    }

    /// Puts every file back. What fails half-way is rolled back to what the turn left.
    pub async fn run(&self, intent: &Intent) -> Result<(), FailedRestore> {
        for file in &self.files {
            if let Err(why) = self.look(file).await {
                return Err(FailedRestore::Nothing(vec![RefusedFile { path: file.path.clone(), why }]));
            }
        }
        for (at, file) in self.files.iter().enumerate() {
            if let Err(why) = self.put_back(file).await {
                return Err(self.give_up(intent, at, why).await);
            }
        }
        self.remove_folders().await;
        Ok(())
    }

    /// After a crash: all files are back, none is, or nobody can tell. A mixture is rolled back to what the turn left.
    pub async fn class(&self, intent: &Intent) -> CallClass {
        // A checkpoint of folders alone has no files that could tell; doing it twice does no harm.
        let class = match intent.files.is_empty() {
            true => CallClass::NotStarted,
            false => classify(&self.workspace, intent, &*self.blobs).await,
        };
        if class == CallClass::Finished {
            self.remove_folders().await;
        }
        class
    }

    async fn put_back(&self, file: &FileChange) -> Result<(), String> {
        let bytes = old_bytes(file, &*self.blobs).await?;
        let (path, file) = (self.workspace.clone(), file.clone());
        on_disk(move || {
            let workspace = Workspace::open(&path)?;
            let (path, place, now) = as_left(&workspace, &file)?;
            match bytes {
                None => replace::remove(&place, &path),
                Some(bytes) => {
                    let like = like(&file, now.as_ref());
                    replace::put(&place, &path, &Content { bytes: &bytes, like }).map(drop)
                }
            }
        })
        .await
    }

    async fn give_up(&self, intent: &Intent, at: usize, why: String) -> FailedRestore {
        let first = RefusedFile { path: self.files[at].path.clone(), why };
        match classify(&self.workspace, intent, &*self.blobs).await {
            CallClass::NotStarted => FailedRestore::Nothing(vec![first]),
            CallClass::Finished | CallClass::Unknown => {
                let stuck = |file: &FileChange| RefusedFile {
                    path: file.path.clone(),
                    why: "it may have been put back, and could not be rolled back".into(),
                };
                FailedRestore::InPart([first].into_iter().chain(self.files[..at].iter().map(stuck)).collect())
            }
        }
    }

    /// Folders that the turn made go with it, the inner ones first, where nothing else is in them.
    async fn remove_folders(&self) {
        let (path, folders) = (self.workspace.clone(), self.folders.clone());
        let done = on_disk(move || remove_folders(&path, &folders)).await;
        if let Err(error) = done {
            tracing::debug!("folders of an undone turn were left: {error}");
        }
    }
}

fn remove_folders(path: &Path, folders: &[String]) -> Result<(), String> {
    let workspace = Workspace::open(path)?;
    let mut folders: Vec<Inside> = folders.iter().filter_map(|folder| workspace.inside(folder).ok()).collect();
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.split().0.len()));
    folders.iter().for_each(|folder| workspace.remove_empty_folder(folder));
    Ok(())
}

/// The file as it is now, if that is what the turn left.
fn as_left(workspace: &Workspace, file: &FileChange) -> Result<(Inside, Place, Option<Found>), String> {
    let path = recorded_path(workspace, file)?;
    let place = workspace.place(&path)?;
    let now = place.current(&path)?;
    if workspace.real(&place, &path) != file.real {
        return Err("a symlink leads elsewhere now".into());
    }
    match (&now, &file.after) {
        (None, None) if !place.missing.is_empty() && file.before.is_some() => Err("its folder is gone".into()),
        (None, None) => Ok((path, place, now)),
        (None, Some(_)) => Err("it was deleted since".into()),
        (Some(_), None) => Err("it was made anew since".into()),
        (Some(found), Some(left)) if digest(&found.bytes) != *left => Err("it was changed since".into()),
        (Some(_), Some(_)) => Ok((path, place, now)),
    }
}

/// Where somebody changed the mode since, that stays.
fn like<'b>(file: &FileChange, now: Option<&Found>) -> Like<'b> {
    let Some(now) = now else { return Like::Restored { mode: file.mode, owner: None } };
    let changed_since = file.mode_after.is_some_and(|left| left != now.mode);
    Like::Restored { mode: if changed_since { Some(now.mode) } else { file.mode }, owner: Some(now.owner) }
}
