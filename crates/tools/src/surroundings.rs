//! Gathers a workspace in brief for a turn: git's state, a map of the sources, and the pieces of files that fit the
//! task. It never takes longer than the plan says, and names what it had to leave out.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use tenure_core::{
    bundle::BundlePlan,
    event::{Bundle, SeedChunk},
};
use tenure_outline::{Chunk, FILE_BYTES_MAX, Focus, Stopped, Survey, choose, looks_secret, outline, rank, tokens};
use tokio_util::sync::CancellationToken;

use crate::{
    git_state::{Git, git_state},
    sources::{Look, NoSurvey, left_out},
    workspace::Workspace,
};

/// Where programs are where nobody says.
const PROGRAM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What is said beside a chunk's text.
const CHUNK_HEAD_TOKENS: usize = 20;

/// What is needed to look around in a workspace.
#[derive(Debug, Clone)]
pub struct Surroundings {
    outline_cache: Option<PathBuf>,
    program_path: OsString,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { outline_cache: None, program_path: PROGRAM_PATH.into() }
    }
}

impl Surroundings {
    /// With a folder for what is known of sources, and the environment whose programs are used.
    pub(crate) fn new(outline_cache: Option<PathBuf>, environment: &[(OsString, OsString)]) -> Self {
        let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
        Self { outline_cache, program_path: path.unwrap_or_else(|| PROGRAM_PATH.into()) }
    }

    /// Gathers what the plan asks for; `task` is what the turn is about.
    pub fn bundle(&self, workspace: &Path, plan: &BundlePlan, task: &str, cancel: &CancellationToken) -> Bundle {
        let deadline = Instant::now() + Duration::from_millis(plan.wait_ms);
        thread::scope(|scope| {
            let git = Git { workspace, program_path: &self.program_path, cancel, deadline };
            let git = plan.git.then(|| scope.spawn(move || git_state(&git)));
            let mut bundle = self.of_sources(workspace, plan, task, cancel, deadline);
            bundle.git = git.and_then(|git| git.join().ok().flatten());
            bundle
        })
    }

    fn of_sources(
        &self,
        workspace: &Path,
        plan: &BundlePlan,
        task: &str,
        cancel: &CancellationToken,
        deadline: Instant,
    ) -> Bundle {
        let mut bundle = Bundle::default();
        if plan.map_tokens == 0 && plan.chunk_tokens == 0 {
            return bundle;
        }
        let cache = self.outline_cache.as_deref();
        match (Look { workspace, below: "", cache, cancel, deadline }).survey() {
            Ok(survey) if survey.files.is_empty() => {}
            Ok(survey) => fill(&mut bundle, &survey, workspace, plan, task),
            Err(NoSurvey::Stopped(Stopped::Late)) => bundle.left_out.push(format!(
                "a map of the sources was not ready within {} ms; the tool repo_map makes one",
                plan.wait_ms
            )),
            // Nobody waits for it any more, or the workspace is gone, which its tools will tell.
            Err(NoSurvey::Stopped(Stopped::Cancelled) | NoSurvey::Refused(_)) => {}
        }
        bundle
    }
}

fn fill(bundle: &mut Bundle, survey: &Survey, workspace: &Path, plan: &BundlePlan, task: &str) {
    let focus = Focus::of_text(task);
    let ranked = rank(survey, &focus);
    let map = outline(survey, &ranked, plan.map_tokens);
    if map.symbols_shown > 0 && map.symbols_shown < map.symbols {
        bundle.left_out.push(format!(
            "the map has {} of {} symbols, in {} of {} files; the tool repo_map shows others",
            map.symbols_shown, map.symbols, map.files_shown, map.files
        ));
    }
    bundle.map = Some(map.text).filter(|text| !text.is_empty());
    if plan.chunk_tokens > 0 {
        bundle.chunks = chunks(workspace, &choose(survey, &ranked, &focus), plan.chunk_tokens);
    }
    let unseen = left_out(&survey.skipped);
    if !unseen.is_empty() {
        bundle.left_out.push(format!("not looked at: {}", unseen.join("; ")));
    }
}

/// The texts of the chosen pieces, the best first, as far as they fit.
fn chunks(workspace: &Path, chosen: &[Chunk], tokens_max: usize) -> Vec<SeedChunk> {
    let Ok(workspace) = Workspace::open(workspace) else { return vec![] };
    let mut room = tokens_max;
    let mut taken = vec![];
    for chunk in chosen.iter().filter(|chunk| !looks_secret(&chunk.path)) {
        let Some(text) = lines(&workspace, chunk) else { continue };
        let size = tokens(&text) + CHUNK_HEAD_TOKENS;
        // A smaller one may still fit.
        if size <= room {
            room -= size;
            let Chunk { path, first_line, last_line, .. } = chunk.clone();
            taken.push(SeedChunk { path, first_line, last_line, text });
        }
    }
    taken
}

/// `None`: the file is no longer what it was.
fn lines(workspace: &Workspace, chunk: &Chunk) -> Option<String> {
    let file = workspace.inside(&chunk.path).and_then(|path| workspace.open_file(&path)).ok()??;
    let mut reader = BufReader::new(file.take(FILE_BYTES_MAX));
    let mut text = vec![];
    for number in 1..=chunk.last_line {
        let mut line = vec![];
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        if number >= chunk.first_line {
            text.extend_from_slice(&line);
        }
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}
