//! One file per command, and the way to it. A command gets its arguments and says how it ended.

pub mod approve;
pub mod ask;
pub mod cancel;
pub mod chat;
pub mod completions;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod man;
pub mod models;
pub mod open;
pub mod serve;
pub mod service;
pub mod session;
pub mod sessions;
pub mod stop;
pub mod store;
pub mod token;
pub mod tools;

use std::{path::PathBuf, sync::atomic::AtomicBool};

use tenure_client::Target;
use tenure_wire::Verdict;

use crate::{
    args::{Cli, Command},
    data,
    exit::{self, Exit, Problem},
    follow::Files,
    remote,
    terminal::Output,
};

/// What every command is told.
pub struct Context {
    pub data: PathBuf,
    /// A daemon that was named, instead of the one of the data folder.
    pub remote: Option<Target>,
    pub output: Output,
    /// Whether it was told that the daemon has another environment than this shell.
    pub has_told_unlike: AtomicBool,
}

impl Context {
    /// Whether the daemon's files can be looked at: one that was named may run anywhere.
    pub fn files(&self) -> Files {
        if self.remote.is_none() { Files::Here } else { Files::Elsewhere }
    }
}

/// A client needs one thread; the daemon brings its own runtime.
fn on_one_thread(work: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // A thread that waits for a key press must not hold up the end.
    runtime.shutdown_background();
    done
}

pub fn run(cli: Cli) -> anyhow::Result<Exit> {
    let remote = match &cli.command {
        // These speak to no daemon.
        Command::Completions(_) | Command::Man(_) => None,
        // And these would do here what was meant for the daemon that is named.
        Command::Serve(_)
        | Command::Demo(_)
        | Command::Config(_)
        | Command::Service(_)
        | Command::Stop(_)
        | Command::Doctor(_)
        | Command::Store(_) => {
            if cli.global.url.is_some() {
                let message = "this command is about this machine";
                return Err(Problem::usage(message, "leave out --url and TENURE_URL, or run it there").into());
            }
            None
        }
        _ => remote::target(&cli.global)?,
    };
    let (data, output) = (data::folder(cli.global.data.as_deref())?, cli.global.output());
    let context = Context { data, remote, output, has_told_unlike: AtomicBool::new(false) };
    let needs_folder = match &cli.command {
        // The doctor tells it among the rest.
        Command::Demo(_) | Command::Doctor(_) | Command::Completions(_) | Command::Man(_) => false,
        _ => context.remote.is_none(),
    };
    if needs_folder && let Some(obstacle) = data::obstacle(&context.data) {
        return Err(Problem::usage(obstacle, "choose another folder with --data DIR").into());
    }
    let done = dispatch(&context, cli.command);
    if context.remote.is_some() { done.map_err(exit::of_elsewhere) } else { done }
}

fn dispatch(context: &Context, command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Serve(arguments) => serve::run(context, &arguments),
        Command::Demo(arguments) => on_one_thread(demo::run(context, &arguments)),
        Command::Ask(arguments) => on_one_thread(ask::run(context, &arguments)),
        Command::Chat(arguments) => on_one_thread(chat::run(context, &arguments)),
        Command::Approve(arguments) => on_one_thread(approve::run(context, &arguments, Verdict::Approve)),
        Command::Deny(arguments) => on_one_thread(approve::run(context, &arguments, Verdict::Deny)),
        Command::Cancel(arguments) => on_one_thread(cancel::run(context, &arguments)),
        Command::Sessions(arguments) => on_one_thread(sessions::run(context, &arguments)),
        Command::Session(arguments) => on_one_thread(session::run(context, &arguments)),
        Command::Models(arguments) => on_one_thread(models::run(context, &arguments)),
        Command::Tools(arguments) => on_one_thread(tools::run(context, &arguments)),
        Command::Token(arguments) => on_one_thread(token::run(context, &arguments)),
        Command::Open(arguments) => on_one_thread(open::run(context, &arguments)),
        Command::Stop(arguments) => on_one_thread(stop::run(context, &arguments)),
        Command::Doctor(arguments) => on_one_thread(doctor::run(context, &arguments)),
        Command::Store(arguments) => store::run(context, &arguments),
        Command::Config(arguments) => config::run(context, &arguments),
        Command::Service(arguments) => on_one_thread(service::run(context, &arguments)),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(context, &arguments),
    }
}
