//! The hidden mode in which the daemon's binary draws: a text comes in, a picture goes out, and the process ends. It sets
//! itself limits first, and opens no file but fonts.

use std::{
    io::{Read as _, Write as _},
    process::ExitCode,
};

use layout::{
    backends::svg::SVGWriter,
    gv::{DotParser, GraphBuilder},
};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{SVG_BYTES_MAX, svg};

/// The argument by which the daemon's binary is told to draw.
pub const DRAW_ARG: &str = "__draw";
/// What to draw is a picture already and is only made safe.
pub(super) const CLEAN: &str = "svg";
/// Some drawings of a few lines would take all there is.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
const PROCESSOR_SECONDS_MAX: u64 = 30;
/// The drawing libraries go deep into nested texts.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Draws what comes on the first of this process's standard streams onto the second, or complains on the third. What is
/// to be drawn is named by the argument after [`DRAW_ARG`].
pub fn draw() -> ExitCode {
    let language = std::env::args().nth(2).unwrap_or_default();
    limit(Resource::As, MEMORY_BYTES_MAX);
    limit(Resource::Cpu, PROCESSOR_SECONDS_MAX);
    limit(Resource::Core, 0);
    // What a library says when it gives up is told below in one line.
    std::panic::set_hook(Box::new(|_| {}));
    let drawing = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || picture(&language));
    let drawn = match drawing.map(std::thread::JoinHandle::join) {
        Ok(Ok(drawn)) => drawn,
        Ok(Err(_)) => Err("the drawing library could not cope with it; write it more simply".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    match drawn {
        Ok(svg) if std::io::stdout().write_all(svg.as_bytes()).is_ok() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn limit(what: Resource, most: u64) {
    // A lower one that holds already cannot be raised, and need not be.
    let _ = setrlimit(what, Rlimit { current: Some(most), maximum: Some(most) });
}

fn picture(language: &str) -> Result<String, String> {
    let mut source = String::new();
    let read = std::io::stdin().take(2 * SVG_BYTES_MAX as u64).read_to_string(&mut source);
    read.map_err(|error| format!("the text cannot be read: {error}"))?;
    let (drawn, font) = match language {
        "mermaid" => (mermaid_rs_renderer::render(&source).map_err(|error| error.to_string())?, None),
        "dot" => (dot(&source)?, Some("Times, serif")),
        CLEAN => (source, None),
        other => return Err(format!("'{other}' cannot be drawn")),
    };
    svg::safe(&drawn, font)
}

fn dot(source: &str) -> Result<String, String> {
    let graph = DotParser::new(source).process().map_err(|error| format!("the DOT text cannot be read: {error}"))?;
    let mut builder = GraphBuilder::new();
    builder.visit_graph(&graph);
    let mut writer = SVGWriter::new();
    builder.get().do_it(false, false, false, &mut writer);
    Ok(writer.finalize())
}
