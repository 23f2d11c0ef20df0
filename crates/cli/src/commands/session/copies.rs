//! `tenure session fork|export|import|purge`: copies of a session, and the end of all of them.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Write as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use bytes::Bytes;
use futures::stream;
use serde_json::json;
use tenure_client::{Archive, Client, print::tamed};
use tenure_wire::{Fork, Imported, Missing, Patch};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::{
    commands::Context,
    count::counted,
    exit::{Exit, Problem},
    lookup, terminal,
};

/// How much of a file is read at a time.
const PIECE_BYTES: usize = 64 * 1024;
/// Standard input or output.
const DASH: &str = "-";

/// A fork as the command line says it.
pub fn wanted(
    seq: Option<u64>,
    title: Option<String>,
    workspace: Option<&Path>,
    model: Option<String>,
    labels: Vec<String>,
) -> anyhow::Result<Fork> {
    let workspace_path = workspace.map(folder).transpose()?;
    Ok(Fork { seq, title, model, workspace_path, labels: Some(labels), idempotency_key: None })
}

/// The whole path of a folder that is there.
pub fn folder(given: &Path) -> anyhow::Result<String> {
    let hint = "name an existing folder";
    let path = std::fs::canonicalize(given)
        .map_err(|error| Problem::usage(format!("cannot use {}: {error}", given.display()), hint))?;
    match path.into_os_string().into_string() {
        Ok(path) => Ok(path),
        Err(path) => Err(Problem::usage(format!("{} is not a text", path.display()), hint).into()),
    }
}

pub async fn fork(context: &Context, client: &Client, given: &str, fork: &Fork) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let forked = client.fork(&session, fork).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&forked)?,
        terminal::Output::Text => {
            let line = format!("{} begins where {session} was at event {}.", forked.session_id, forked.forked_from.seq);
            terminal::print_line(&line)?;
            forked.missing.iter().for_each(|name| tell_left_out(name));
        }
    }
    Ok(Exit::Ok)
}

pub async fn export(
    context: &Context,
    client: &Client,
    given: &str,
    output: Option<&Path>,
    force: bool,
) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    if output == Some(Path::new(DASH)) {
        if io::stdout().is_terminal() {
            let hint = "name a file with --output, or send it on with |";
            return Err(Problem::usage("an archive is nothing for a terminal", hint).into());
        }
        let mut archive = client.export(&session).await?;
        copy(&mut archive, &mut io::stdout().lock()).await?;
        tell_missing(&archive.missing());
        return Ok(Exit::Ok);
    }
    let path = output.map_or_else(|| PathBuf::from(format!("{session}.tar.gz")), Path::to_owned);
    if path.is_dir() {
        let message = format!("{} is a folder", path.display());
        let hint = format!("name a file in it: --output {}", path.join(format!("{session}.tar.gz")).display());
        return Err(Problem::usage(message, hint).into());
    }
    if path.exists() && !force {
        let message = format!("{} is there already", path.display());
        return Err(Problem::usage(message, "choose another file with --output, or write over it with --force").into());
    }
    let failed = || format!("cannot write {}", path.display());
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Under its name there is a whole archive or none.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| {
        let message = format!("{}: {} ({})", failed(), folder.display(), error.kind());
        Problem::usage(message, "name a file in a folder that is there and can be written, with --output FILE")
    })?;
    let mut archive = client.export(&session).await?;
    let bytes = copy(&mut archive, &mut file).await.with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist(&path).map_err(|error| error.error).with_context(failed)?;
    let missing = archive.missing();
    match context.output {
        terminal::Output::Json => {
            let mut told = json!({"session_id": session, "file": path, "bytes": bytes});
            if missing.count > 0 {
                told["missing"] = json!(missing);
            }
            terminal::print_json(&told)?;
        }
        terminal::Output::Text => {
            terminal::print_line(&format!("{} holds {session}: {}.", path.display(), counted(bytes, "byte")))?;
        }
    }
    tell_missing(&missing);
    Ok(Exit::Ok)
}

/// What is not in an archive is said where people see it, wherever the archive itself goes.
fn tell_missing(missing: &Missing) {
    for name in &missing.names {
        tell_left_out(name);
    }
    let more = missing.count.saturating_sub(missing.names.len() as u64);
    if more > 0 {
        let more = counted(more, "more file");
        terminal::note(&format!("{more} that it lacks: tenure-export.json in it names all of them.\n"));
    }
}

fn tell_left_out(name: &str) {
    terminal::note(&format!("{} was lost or changed on the disk, and is not in it.\n", tamed(name)));
}

async fn copy(archive: &mut Archive, to: &mut impl io::Write) -> anyhow::Result<u64> {
    let mut bytes = 0;
    while let Some(piece) = archive.next().await? {
        to.write_all(&piece)?;
        bytes += piece.len() as u64;
    }
    to.flush()?;
    Ok(bytes)
}

pub async fn import(
    context: &Context,
    client: &Client,
    file: &Path,
    as_new: bool,
    workspace: Option<&Path>,
) -> anyhow::Result<Exit> {
    let workspace_path = workspace.map(folder).transpose()?;
    let hint = "name a file that `tenure session export` made";
    if file.is_dir() {
        return Err(Problem::usage(format!("{} is a folder", file.display()), hint).into());
    }
    let opened = match file == Path::new(DASH) {
        true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => File::open(file),
    };
    let missing = |error| Problem::usage(format!("cannot read {}: {error}", file.display()), hint);
    let pieces = tokio::fs::File::from_std(opened.map_err(missing)?);
    let imported = client.import(stream::unfold(pieces, next_piece), as_new).await?;
    let Imported { session_id, seq, missing, .. } = &imported;
    if workspace_path.is_some() {
        let patch = Patch { workspace_path, ..Patch::default() };
        client.patch(session_id, None, &patch).await?;
    }
    match context.output {
        terminal::Output::Json => terminal::print_json(&imported)?,
        terminal::Output::Text => {
            terminal::print_line(&format!("{session_id} is here, with {}.", counted(*seq, "event")))?;
            for name in missing {
                terminal::tell(&format!("{} was missing when it was exported.", tamed(name)));
            }
            let view = client.session(session_id).await?;
            if !Path::new(&view.workspace_path).is_dir() {
                let path = tamed(&view.workspace_path);
                terminal::note(&format!(
                    "Its folder {path} is not there: give it another one with\n    \
                     tenure session change {session_id} --workspace DIR\n"
                ));
            }
        }
    }
    Ok(Exit::Ok)
}

async fn next_piece<R: AsyncRead + Unpin>(mut from: R) -> Option<(io::Result<Bytes>, R)> {
    let mut piece = vec![0; PIECE_BYTES];
    match from.read(&mut piece).await {
        Ok(0) => None,
        Ok(read) => {
            piece.truncate(read);
            Some((Ok(piece.into()), from))
        }
        Err(error) => Some((Err(error), from)),
    }
}

pub async fn purge(context: &Context, client: &Client, given: &str, yes: bool) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let view = client.session(&session).await?;
    if !yes && !confirmed(&session, view.title.as_deref())? {
        terminal::note("Nothing was removed.\n");
        return Ok(Exit::Failed);
    }
    client.purge(&session).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&json!({"session_id": session, "status": "purged"}))?,
        terminal::Output::Text => terminal::print_line(&format!("{session} is gone."))?,
    }
    Ok(Exit::Ok)
}

/// What cannot be taken back is asked for once.
fn confirmed(session: &str, title: Option<&str>) -> anyhow::Result<bool> {
    if !terminal::is_interactive() {
        let message = "this removes the session for ever, and nobody can be asked";
        return Err(Problem::usage(message, "say --yes if that is what you want").into());
    }
    let title = title.map(|title| format!(" ({})", tamed(title))).unwrap_or_default();
    terminal::note(&terminal::stderr_look().folded(&format!("Remove {session}{title} for ever? [y/N] ")));
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
