//! The `repo_tree` tool: folders and files as an indented tree, as deep as fits. It never opens a file and never leaves
//! the workspace.

use std::{collections::BTreeMap, ffi::OsString, fmt::Write as _, path::Path};

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::tool::{Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan};

use crate::{
    CallContext, Invoked, OUTPUT_BYTES_MAX, Tool,
    tool::{flag, text_field},
    walk::{self, Left, Stop, Stopped, counted},
    workspace::{Spot, Workspace},
};

/// What is looked at before the rest of a huge tree is left out.
const ENTRIES_WALKED_MAX: u64 = 200_000;
/// Lines of the tree: more do not help a model to find its way.
const ENTRIES_SHOWN_MAX: usize = 1_000;
/// Of one folder, so that a folder of data does not push out everything else.
const CHILDREN_SHOWN_MAX: usize = 200;
/// From this size on a file's size is worth its tokens.
const SIZE_SHOWN_FROM: u64 = 100 * 1024;
/// Room for the notes below the tree.
const NOTES_BYTES: usize = 512;
const DEPTH_MAX: u64 = 32;

pub(crate) struct RepoTree;

#[async_trait]
impl Tool for RepoTree {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "repo_tree".into(),
            description: "Shows the folders and files of the workspace as an indented tree. What .gitignore and \
                          .ignore name and hidden files are left out unless asked for. Without `depth` it goes as \
                          deep as fits; a folder that is not opened tells how much is in it: ask for its `path`."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "the folder to begin with; the workspace if left out"},
                    "depth": {"type": "integer", "minimum": 1, "maximum": DEPTH_MAX, "description": "how many levels"},
                    "hidden": {"type": "boolean", "description": "also names that begin with a dot"},
                    "ignored": {"type": "boolean", "description": "also what ignore rules name"}
                },
                "additionalProperties": false
            }),
            kind: ToolKind::Read,
        }
    }

    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        match text_field(input, "path") {
            "" => ".".to_owned(),
            path => path.to_owned(),
        }
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        let workspace = context.workspace.clone();
        let path = input.get("path").and_then(Value::as_str).map(str::to_owned);
        let depth = input.get("depth").and_then(Value::as_u64);
        let left = Left { hidden: !flag(input, "hidden"), ignored: !flag(input, "ignored") };
        let work = move |stop: Stop| {
            let spot = Workspace::open(&workspace)?.spot(path.as_deref())?;
            if !spot.is_folder {
                return Err(format!("{} is a file; read_file shows it", spot.name()));
            }
            let tree = Tree::walk(&spot, left, &stop)?;
            Ok(tree.text(&spot, depth))
        };
        match Stop::new(&context.cancel).or(work).await {
            Ok(text) => Invoked::done(ToolResult::ok(text)),
            Err(error) => Invoked::failed(error),
        }
    }
}

struct Tree {
    top: Folder,
    /// Why not everything was looked at.
    cut: Option<String>,
}

#[derive(Default)]
struct Folder {
    folders: BTreeMap<OsString, Folder>,
    /// What is no folder, and what kind of thing it is where it is no regular file.
    files: BTreeMap<OsString, &'static str>,
    /// In it and below.
    all_files: u64,
    all_folders: u64,
}

impl Tree {
    fn walk(spot: &Spot, left: Left, stop: &Stop) -> Result<Self, String> {
        let (root, mut top, mut cut) = (spot.path(), Folder::default(), None);
        let mut walked = 0;
        // What cannot be looked into is left out, as a listing would do.
        for entry in walk::walk(spot, left, None).build().flatten().filter(|entry| entry.depth() > 0) {
            walked += 1;
            if walked > ENTRIES_WALKED_MAX {
                cut = Some(format!("only the first {ENTRIES_WALKED_MAX} entries were looked at"));
                break;
            }
            match stop.reason() {
                Some(Stopped::Canceled) => return Err("stopped".into()),
                Some(Stopped::TimedOut) => {
                    cut = Some(format!("only what was found within {} s is here", walk::WALK_TIME_MAX.as_secs()));
                    break;
                }
                None => {}
            }
            let Ok(below) = entry.path().strip_prefix(&root) else { continue };
            match entry.file_type() {
                Some(kind) if kind.is_dir() => top.add_folder(below),
                Some(kind) if kind.is_file() => top.add_file(below, ""),
                Some(kind) if kind.is_symlink() => top.add_file(below, "@"),
                _ => top.add_file(below, "|"),
            }
        }
        Ok(Self { top, cut })
    }

    fn text(&self, spot: &Spot, depth: Option<u64>) -> String {
        let head = format!("{}: {}\n", spot.name(), self.top.counts());
        let room = OUTPUT_BYTES_MAX - NOTES_BYTES - head.len().min(NOTES_BYTES);
        let mut drawn = self.drawn(spot, depth.unwrap_or(1), room);
        // As deep as fits; a level that adds nothing is the last.
        for deeper in 2..=DEPTH_MAX {
            if depth.is_some() || !drawn.whole || !drawn.closed_folders {
                break;
            }
            let next = self.drawn(spot, deeper, room);
            if !next.whole {
                break;
            }
            drawn = next;
        }
        let mut text = head + &drawn.text;
        for note in self.notes(&drawn) {
            let _ = writeln!(text, "[{note}]");
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn notes(&self, drawn: &Drawn) -> Vec<String> {
        let mut notes = vec![];
        if !drawn.whole {
            notes.push("there is more than fits: ask for a folder by its path, or for less depth".to_owned());
        } else if drawn.closed_folders {
            notes.push("folders with a count are not opened here: ask for one by its path".to_owned());
        }
        notes.extend(self.cut.clone());
        notes
    }

    fn drawn(&self, spot: &Spot, depth: u64, room: usize) -> Drawn {
        let mut drawn = Drawn { text: String::new(), lines: 0, whole: true, closed_folders: false, room };
        drawn.folder(&self.top, &spot.path(), 0, depth);
        drawn
    }
}

impl Folder {
    /// A walk tells of each folder once, after those around it.
    fn add_folder(&mut self, below: &Path) {
        let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else { return };
        let mut folder = self;
        folder.all_folders += 1;
        for part in parent {
            folder = folder.folders.entry(part.to_owned()).or_default();
            folder.all_folders += 1;
        }
        folder.folders.entry(name.to_owned()).or_default();
    }

    fn add_file(&mut self, below: &Path, kind: &'static str) {
        let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else { return };
        let mut folder = self;
        folder.all_files += 1;
        for part in parent {
            folder = folder.folders.entry(part.to_owned()).or_default();
            folder.all_files += 1;
        }
        folder.files.insert(name.to_owned(), kind);
    }

    fn counts(&self) -> String {
        let files = counted(self.all_files, "file", "files");
        match self.all_folders {
            0 => files,
            folders => format!("{files} in {}", counted(folders, "folder", "folders")),
        }
    }
}

/// The tree down to some depth, as far as it fits.
struct Drawn {
    text: String,
    lines: usize,
    whole: bool,
    /// Whether there are folders that are only counted.
    closed_folders: bool,
    room: usize,
}

impl Drawn {
    /// Folders first: they tell more than files do. Its depth is bounded by `DEPTH_MAX`.
    fn folder(&mut self, folder: &Folder, path: &Path, level: usize, depth: u64) {
        if !self.whole {
            return;
        }
        for (name, inner) in folder.folders.iter().take(CHILDREN_SHOWN_MAX) {
            let shown = name.to_string_lossy();
            match depth {
                1 if inner.all_files + inner.all_folders > 0 => {
                    self.closed_folders = true;
                    self.line(level, &format!("{shown}/ ({})", inner.counts()));
                }
                _ => self.line(level, &format!("{shown}/")),
            }
            if depth > 1 {
                self.folder(inner, &path.join(name), level + 1, depth - 1);
            }
        }
        self.more(level, folder.folders.len(), "folders");
        for (name, kind) in folder.files.iter().take(CHILDREN_SHOWN_MAX) {
            let size = if self.whole { size(&path.join(name)) } else { String::new() };
            self.line(level, &format!("{}{kind}{size}", name.to_string_lossy()));
        }
        self.more(level, folder.files.len(), "files");
    }

    fn more(&mut self, level: usize, count: usize, what: &str) {
        if count > CHILDREN_SHOWN_MAX {
            self.line(level, &format!("… {} more {what} here", count - CHILDREN_SHOWN_MAX));
        }
    }

    fn line(&mut self, level: usize, text: &str) {
        let bytes = level * 2 + text.len() + 1;
        if self.lines >= ENTRIES_SHOWN_MAX || self.text.len() + bytes > self.room {
            self.whole = false;
        }
        if self.whole {
            self.lines += 1;
            let _ = writeln!(self.text, "{:1$}{text}", "", level * 2);
        }
    }
}

/// A large file's size; others are not worth the words.
fn size(path: &Path) -> String {
    let bytes = path.symlink_metadata().map_or(0, |metadata| metadata.len());
    match bytes {
        0..SIZE_SHOWN_FROM => String::new(),
        SIZE_SHOWN_FROM..0x10_0000 => format!(" ({} KB)", bytes >> 10),
        _ => format!(" ({} MB)", bytes >> 20),
    }
}
