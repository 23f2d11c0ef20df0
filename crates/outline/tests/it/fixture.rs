//! A small repository in all languages, and the way to look at it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use tenure_outline::{Focus, Outline, PARSE_TIME_MAX, Repository, Stop, Stopped, Survey, outline, rank, survey};

pub const NEVER: Stop = Stop { is_cancelled: &|| false, deadline: None };

pub struct Fixture {
    pub root: TempDir,
    pub cache: TempDir,
}

impl Fixture {
    pub fn empty() -> Self {
        Self { root: tempfile::tempdir().unwrap(), cache: tempfile::tempdir().unwrap() }
    }

    /// The corpus, each file where its name says.
    pub fn mixed() -> Self {
        let fixture = Self::empty();
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/sources");
        for entry in fs::read_dir(corpus).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let path = name.strip_suffix(".txt").unwrap().replace("__", "/");
            fixture.put(&path, fs::read(entry.path()).unwrap());
        }
        fixture
    }

    pub fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn look(&self) -> Survey {
        self.look_below("", &NEVER).unwrap()
    }

    pub fn look_below(&self, below: &str, stop: &Stop) -> Result<Survey, Stopped> {
        look(self.root.path(), Some(self.cache.path()), below, stop)
    }

    pub fn outline(&self, focus: &str, tokens: usize) -> Outline {
        let survey = self.look();
        outline(&survey, &rank(&survey, &Focus::of_text(focus)), tokens)
    }

    /// Makes all files old enough that their stamps are trusted.
    pub fn settle(&self) {
        std::thread::sleep(std::time::Duration::from_millis(1_100));
    }

    pub fn paths(&self) -> Vec<String> {
        self.look().files.into_iter().map(|file| file.path).collect()
    }
}

/// As the daemon looks.
pub fn look(root: &Path, cache: Option<&Path>, below: &str, stop: &Stop) -> Result<Survey, Stopped> {
    let open = |path: &str| File::open(root.join(path));
    survey(&Repository { root, below, open: &open, cache, parse_time: PARSE_TIME_MAX }, stop)
}
