//! A workspace's plugins: folders below `.agents/tools`, each with an executable named `tool` that speaks lines of JSON.
//! Its bytes are what a person says yes to; what runs is a copy of exactly these bytes, kept in the data folder.

mod process;
pub(crate) mod protocol;

use std::{
    fs,
    io::Read as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::mcp_json::check_name;

pub(super) use process::{call, describe};

/// Where a workspace keeps its plugins.
pub(crate) const FOLDER: &str = ".agents/tools";
/// What is run.
const PROGRAM: &str = "tool";
/// Plugins that one workspace may have.
const PLUGINS_MAX: usize = 32;
const FILES_MAX: usize = 256;
const BYTES_MAX: u64 = 8 << 20;
const DEPTH_MAX: usize = 8;

/// A plugin as it lies in the workspace.
#[derive(Debug, Clone)]
pub(super) struct Plugin {
    pub(super) name: String,
    /// Of all its files: names, bytes, and whether they can be run.
    pub(super) digest: String,
    files: Arc<[File]>,
}

#[derive(Debug)]
struct File {
    path: String,
    bytes: Vec<u8>,
    executable: bool,
}

impl Plugin {
    pub(super) fn source(&self) -> String {
        format!("plugin:{}", self.name)
    }

    /// What a person is asked about.
    pub(super) fn text(&self) -> String {
        format!("{FOLDER}/{}/{PROGRAM}\nfiles: {} ({})", self.name, self.files.len(), &self.digest)
    }

    /// The copy that runs, made where there is none. Whatever lies there under this digest was written by us.
    pub(super) fn installed(&self, folder: &Path) -> Result<PathBuf, String> {
        let home = folder.join("plugins").join(&self.digest);
        let program = home.join(PROGRAM);
        if !home.is_dir() {
            self.install(&home).map_err(|error| format!("the plugin {} cannot be kept: {error}", self.name))?;
        }
        Ok(program)
    }

    /// Whole or not at all.
    fn install(&self, home: &Path) -> std::io::Result<()> {
        let beside = home.with_extension(format!("new-{}", std::process::id()));
        let _ = fs::remove_dir_all(&beside);
        for file in self.files.iter() {
            let path = beside.join(&file.path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, &file.bytes)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(if file.executable { 0o500 } else { 0o400 }))?;
        }
        match fs::rename(&beside, home) {
            // Somebody else made the same copy.
            Err(_) if home.is_dir() => fs::remove_dir_all(&beside),
            renamed => renamed,
        }
    }
}

/// The plugins of a workspace in the order of their names, and what could not be used. Symlinks are not followed.
pub(super) fn find(workspace: &Path) -> (Vec<Plugin>, Vec<String>) {
    let (mut plugins, mut problems) = (vec![], vec![]);
    let folder = workspace.join(FOLDER);
    let plain = [workspace.join(".agents"), folder.clone()].iter().all(|path| is_folder(path));
    let Some(entries) = plain.then(|| fs::read_dir(&folder).ok()).flatten() else { return (plugins, problems) };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| is_folder(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    if names.len() > PLUGINS_MAX {
        problems.push(format!("{FOLDER}: only the first {PLUGINS_MAX} plugins are taken"));
    }
    for name in names.into_iter().take(PLUGINS_MAX) {
        match read(&folder.join(&name), &name) {
            Ok(plugin) => plugins.push(plugin),
            Err(why) => problems.push(format!("{FOLDER}/{name}: {why}")),
        }
    }
    (plugins, problems)
}

fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

fn read(folder: &Path, name: &str) -> Result<Plugin, String> {
    check_name(name)?;
    let (mut files, mut room) = (vec![], BYTES_MAX);
    collect(folder, "", 0, &mut files, &mut room)?;
    files.sort_by(|a: &File, b| a.path.cmp(&b.path));
    if !files.iter().any(|file| file.path == PROGRAM && file.executable) {
        return Err(format!("it has no executable named {PROGRAM}"));
    }
    let mut digest = blake3::Hasher::new();
    for File { path, bytes, executable } in &files {
        digest.update(&(path.len() as u64).to_le_bytes()).update(path.as_bytes()).update(&[u8::from(*executable)]);
        digest.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    }
    Ok(Plugin { name: name.to_owned(), digest: digest.finalize().to_hex().to_string(), files: files.into() })
}

fn collect(folder: &Path, below: &str, depth: usize, files: &mut Vec<File>, room: &mut u64) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("its folders are nested deeper than {DEPTH_MAX}"));
    }
    for entry in fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
        let name = entry.file_name().into_string().map_err(|_| "a file's name is not UTF-8")?;
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let kind = entry.file_type().map_err(|error| error.to_string())?;
        if kind.is_dir() {
            collect(&entry.path(), &path, depth + 1, files, room)?;
        } else if kind.is_file() {
            files.push(read_file(&entry.path(), path, room)?);
        } else {
            return Err(format!("{path} is neither a file nor a folder"));
        }
        if files.len() > FILES_MAX {
            return Err(format!("it has more than {FILES_MAX} files"));
        }
    }
    Ok(())
}

fn read_file(at: &Path, path: String, room: &mut u64) -> Result<File, String> {
    let told = |error: std::io::Error| format!("{path}: {error}");
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let file = fs::File::options().read(true).custom_flags(flags).open(at).map_err(told)?;
    let metadata = file.metadata().map_err(told)?;
    let mut bytes = vec![];
    file.take(*room + 1).read_to_end(&mut bytes).map_err(told)?;
    *room = room.checked_sub(bytes.len() as u64).ok_or_else(|| format!("it is larger than {BYTES_MAX} bytes"))?;
    Ok(File { path, bytes, executable: metadata.permissions().mode() & 0o111 != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(workspace: &Path, path: &str, text: &str, mode: u32) {
        let path = workspace.join(FOLDER).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_plugin_is_its_bytes() {
        let workspace = tempfile::tempdir().unwrap();
        let workspace = workspace.path();
        assert!(find(workspace).0.is_empty());
        put(workspace, "count/tool", "#!/bin/sh\n", 0o755);
        put(workspace, "count/lib/x.py", "1", 0o644);
        put(workspace, "none/readme", "", 0o644);
        put(workspace, "a__b/tool", "", 0o755);
        put(workspace, "linked/tool", "", 0o755);
        std::os::unix::fs::symlink("/etc/passwd", workspace.join(FOLDER).join("linked/x")).unwrap();
        let (plugins, problems) = find(workspace);
        assert_eq!(plugins.iter().map(|plugin| plugin.name.as_str()).collect::<Vec<_>>(), ["count"]);
        assert_eq!(problems.len(), 3, "{problems:?}");
        let first = plugins[0].clone();
        assert_eq!(find(workspace).0[0].digest, first.digest);
        put(workspace, "count/lib/x.py", "2", 0o644);
        let second = find(workspace).0[0].clone();
        assert_ne!(second.digest, first.digest);
        put(workspace, "count/lib/x.py", "1", 0o755);
        assert_ne!(find(workspace).0[0].digest, first.digest, "what can be run is another thing");

        let data = tempfile::tempdir().unwrap();
        let program = first.installed(data.path()).unwrap();
        assert_eq!(fs::read_to_string(&program).unwrap(), "#!/bin/sh\n");
        assert_eq!(fs::read_to_string(program.with_file_name("lib").join("x.py")).unwrap(), "1");
        assert_eq!(first.installed(data.path()).unwrap(), program);
    }

    #[test]
    fn a_folder_that_is_a_symlink_is_not_looked_into() {
        let (workspace, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        put(outside.path(), "x/tool", "", 0o755);
        std::os::unix::fs::symlink(outside.path().join(".agents"), workspace.path().join(".agents")).unwrap();
        assert!(find(workspace.path()).0.is_empty());
    }
}
