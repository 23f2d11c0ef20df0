//! `tenure serve`: puts the daemon together and runs it until it is told to stop.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};
use tenure_client::discover;
use tenure_core::policy::Policy;
use tenure_core::redact::{SECRET_BYTES_MIN, Secrets, is_secret_name};
use tenure_engine::{Engine, EngineConfig, Parts, SystemClock};
use tenure_models::catalog::Catalog;
use tenure_server::{About, Access, Limits, Visits};
use tenure_store::FileStore;
use tenure_tools::{ToolsConfig, foreign::Server};
use tenure_wire::DaemonInfo;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{Context, stop};
use crate::{
    address,
    config::{self, Config, Durability, FetchPrivate, Hidden, Positive},
    daemon, data,
    exit::{self, Exit, Problem},
    foreign,
    log::{self, LogFile},
    memory,
    models::{self, Variable},
    remote::{self, Files, Remote, Said, TlsSource},
    standing::FileStanding,
    systemd,
    terminal::{self, Output},
};

const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8787);
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Sessions wait far more than they work.
const WORKERS_MAX: usize = 4;
/// Threads that wait for the disk; more than the disk takes at once, and far fewer than there may be watchers.
const BLOCKING_MAX: usize = 128;
/// How often a background daemon looks whether anybody needs it, at least.
const IDLE_LOOK_MAX: Duration = Duration::from_secs(5);
/// How long a daemon that is to be taken over from may take to end.
const TAKE_OVER_MAX: Duration = Duration::from_secs(30);
const TAKE_OVER_LOOK: Duration = Duration::from_millis(20);
/// Running supervisors are recorded here, in the data folder.
const LEDGER: &str = "processes";
/// What is known of the sources of workspaces, in the data folder; it may be deleted at any time.
const OUTLINE_CACHE: &str = "cache/outline";

/// The code of a folder that another daemon has.
const LOCKED: &str = "locked";
/// Tokens that stand ready for rotations of the daemon's own within one life.
const SPARE_TOKENS: usize = 8;

const EXAMPLES: &str = "\
Examples:
    tenure serve
    tenure serve --listen 127.0.0.1:0 --data ./data
    tenure serve --take-over      after an upgrade, in place of the old one
    tenure serve --listen 0.0.0.0:8787 --allow-remote --tls --name box.example
    TENURE_LOG=debug tenure serve";

/// Run the daemon
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", config::HELP))]
pub struct Arguments {
    /// Where to listen; port 0 takes any free one [default: 127.0.0.1:8787]
    #[arg(long, env = "TENURE_LISTEN", hide_env_values = true, value_name = "ADDRESS", value_parser = address::parse)]
    listen: Option<SocketAddr>,
    /// The model of sessions that name none [default: of the first vendor whose key is there, or scripted]
    #[arg(long, env = "TENURE_DEFAULT_MODEL", hide_env_values = true, value_name = "MODEL")]
    default_model: Option<String>,
    /// What an acknowledged event survives [default: power]
    #[arg(long, env = "TENURE_DURABILITY", hide_env_values = true, value_enum)]
    durability: Option<Durability>,
    /// Write the log to this file instead of stderr; it begins anew before it grows too large
    #[arg(long, env = "TENURE_LOG_FILE", hide_env_values = true, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// If a daemon runs on this data folder, end it and take its place: for upgrades
    #[arg(long)]
    take_over: bool,
    /// Listen on an address that others can reach; needs TLS or a proxy
    #[arg(long)]
    allow_remote: bool,
    /// A host name under which the daemon may be reached, beside those of loopback; may be given again
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// The host name of a proxy that speaks TLS for the daemon
    #[arg(long, value_name = "NAME")]
    behind_proxy: Option<String>,
    /// Speak TLS, with a certificate of the daemon's own making unless one is given
    #[arg(long)]
    tls: bool,
    /// A certificate with its chain, as PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// End when there was no client and no open turn for this long: for daemons that a command started
    #[arg(long, hide = true, value_name = "MS")]
    end_when_idle_ms: Option<u64>,
}

/// What flags, environment and file come to.
struct Settings {
    listen: SocketAddr,
    durability: Durability,
    end_when_idle: Option<Duration>,
    take_over: bool,
    log: Option<PathBuf>,
    log_bytes_max: u64,
    log_keep: u32,
    engine: EngineConfig,
    catalog: Catalog,
    limits: Limits,
    remote: Remote,
    policy: Policy,
    secrets: BTreeMap<String, Hidden>,
    secret_variables: Vec<String>,
    servers: Vec<Server>,
    fetch_private: FetchPrivate,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.end_when_idle_ms.is_some() {
        // Away from the terminal of the command that started us, whose Ctrl-C is not for us.
        let _ = rustix::process::setsid();
    }
    let settings = settle(arguments, config::read(&context.data)?, &models::environment)?;
    let log_file = settings.log.as_deref().map(|path| open_log(path, &settings)).transpose()?;
    log::start(log_file.as_ref());
    raise_file_limit();
    hear_signals();
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, WORKERS_MAX);
    memory::set_up(workers);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(workers).max_blocking_threads(BLOCKING_MAX).enable_all().build()?;
    let done = runtime.block_on(serve(context, settings, log_file));
    runtime.shutdown_background();
    match done {
        // The command that started us waits for the one that was faster, and for nothing else.
        Err(error) if arguments.end_when_idle_ms.is_some() && exit::code(&error) == LOCKED => {
            exit::report(&error, context.output);
            Ok(daemon::TAKEN)
        }
        done => done,
    }
}

fn open_log(path: &Path, settings: &Settings) -> anyhow::Result<LogFile> {
    let hint = "name another file with --log-file (or log.file in config.toml)";
    let failed = |error| Problem::usage(format!("cannot write the log {}: {error}", path.display()), hint);
    let file = LogFile::open(path, settings.log_bytes_max, settings.log_keep).map_err(failed)?;
    if settings.end_when_idle.is_some() {
        // Nobody looks at the streams of a daemon that a command started.
        file.take_streams()?;
    }
    Ok(file)
}

fn settle(arguments: &Arguments, config: Config, variable: Variable<'_>) -> anyhow::Result<Settings> {
    let servers = foreign::servers(&config);
    let listen = arguments.listen.or(config.listen).unwrap_or(LISTEN_DEFAULT);
    let catalog = models::catalog(&config, variable)?;
    let said = Said {
        allow: arguments.allow_remote,
        names: arguments.names.clone(),
        proxy: arguments.behind_proxy.clone(),
        tls: arguments.tls,
        certificate: arguments.tls_cert.clone(),
        key: arguments.tls_key.clone(),
    };
    let remote = remote::settle(listen, said.or(config.remote, config.tls))?;
    let default_model =
        models::default_model(&catalog, arguments.default_model.as_deref().or(config.default_model.as_deref()))?;
    let mut engine = EngineConfig { default_model, verify_commands: config.verify_commands, ..EngineConfig::default() };
    let mut limits = Limits::default();
    set(&mut engine.idle_evict, config.idle_evict);
    config.context.lay_over(&mut engine.bundle);
    config.limits.lay_over(&mut limits, &mut engine);
    let durability = arguments.durability.or(config.durability).unwrap_or(Durability::Power);
    let end_when_idle = arguments.end_when_idle_ms.map(Duration::from_millis);
    let mut policy = Policy::default();
    set(&mut policy.recovery.resume, config.recovery.resume);
    Ok(Settings {
        listen,
        durability,
        end_when_idle,
        take_over: arguments.take_over,
        log: arguments.log_file.clone().or(config.log.file),
        log_bytes_max: config.log.bytes_max.map_or(log::BYTES_MAX, |Positive(max)| max as u64),
        log_keep: config.log.keep.unwrap_or(log::KEEP),
        engine,
        secret_variables: config.secret_variables.into_iter().chain(key_variables(&catalog)).collect(),
        fetch_private: config.tools.fetch_private,
        catalog,
        limits,
        remote,
        policy,
        secrets: config.secrets,
        servers,
    })
}

/// Variables that hold keys of providers; what they are called does not always tell.
fn key_variables(catalog: &Catalog) -> Vec<String> {
    let all = catalog.providers().filter_map(|provider| provider.key_variable());
    all.filter(|name| !is_secret_name(name)).map(str::to_owned).collect()
}

/// Every setting of the file and what it comes to. Secrets are named, never shown.
pub fn shown(
    arguments: &Arguments,
    config: Config,
    variable: Variable<'_>,
) -> anyhow::Result<Vec<(&'static str, Value)>> {
    let Settings {
        listen,
        durability,
        mut engine,
        mut limits,
        remote,
        policy,
        secrets,
        secret_variables,
        fetch_private,
        log,
        log_bytes_max,
        log_keep,
        ..
    } = settle(arguments, config.clone(), variable)?;
    let durability = match durability {
        Durability::Power => "power",
        Durability::Process => "process",
    };
    let (certificate, key) = match &remote.tls {
        TlsSource::Files { certificate, key } => (Some(certificate), Some(key)),
        TlsSource::Own | TlsSource::Off => (None, None),
    };
    let mut all = vec![
        ("listen", json!(listen)),
        ("default_model", json!(engine.default_model)),
        ("durability", json!(durability)),
        ("verify_commands", json!(engine.verify_commands)),
        ("idle_evict_ms", config::shown_ms(engine.idle_evict)),
        ("secret_variables", json!(secret_variables)),
        ("log.file", json!(log)),
        ("log.bytes_max", json!(log_bytes_max)),
        ("log.keep", json!(log_keep)),
        ("context.git", json!(engine.bundle.git)),
        ("context.map_tokens", json!(engine.bundle.map_tokens)),
        ("context.chunk_tokens", json!(engine.bundle.chunk_tokens)),
        ("context.wait_ms", json!(engine.bundle.wait_ms)),
        ("recovery.resume", json!(policy.recovery.resume)),
        ("tools.fetch_private", fetch_private.shown()),
        ("secrets", json!(secrets.keys().collect::<Vec<_>>())),
        ("providers", models::shown_providers(&config)),
        ("models", json!(config.models.keys().collect::<Vec<_>>())),
        ("aliases", json!(config.aliases)),
        ("mcp_servers", foreign::shown(&config)),
        ("remote.allow", json!(arguments.allow_remote || config.remote.allow)),
        ("remote.names", json!(remote.names)),
        ("remote.behind_proxy", json!(remote.proxy)),
        ("tls.on", json!(remote.tls != TlsSource::Off)),
        ("tls.cert", json!(certificate)),
        ("tls.key", json!(key)),
    ];
    all.extend(config::Limits::shown(&mut limits, &mut engine));
    Ok(all)
}

fn set<T>(place: &mut T, said: Option<T>) {
    if let Some(value) = said {
        *place = value;
    }
}

async fn serve(context: &Context, settings: Settings, log_file: Option<LogFile>) -> anyhow::Result<Exit> {
    let data = &context.data;
    data::make(data)?;
    if let Some(log_file) = log_file {
        tokio::spawn(reopen_when_told(log_file));
    }
    let (durability, durability_name) = match settings.durability {
        Durability::Power => (tenure_store::Durability::Power, "power"),
        Durability::Process => (tenure_store::Durability::Process, "process"),
    };
    let options = tenure_store::Options { durability, ..Default::default() };
    let store = open_store(data, options, settings.take_over).await?;
    data::sweep(data);
    let token = data::token(data)?;
    let keeper = Files(data.clone());
    let kept = keeper.kept()?;
    let tls = settings.remote.tls(data)?;
    // Made now, so that they are kept out of texts from the beginning.
    let spare: Vec<String> = (0..SPARE_TOKENS).map(|_| data::random_hex()).collect::<anyhow::Result<_>>()?;
    let listener = listen(settings.listen).await?;
    let mut tools = tools(data, &settings.secret_variables).await?;
    tools.fetch_private = settings.fetch_private.0;
    let known = settings.catalog.providers().flat_map(|provider| provider.secrets());
    let known = known.chain(foreign::secrets(&settings.servers));
    let secrets = secrets(&token, &spare, settings.secrets, &settings.secret_variables, known);
    let engine = Engine::start(Parts {
        store,
        models: Arc::new(settings.catalog),
        foreign: Some(foreign::tools(data, settings.servers, &tools)),
        tools: Arc::new(tenure_tools::Registry::new(tools)),
        clock: Arc::new(SystemClock::new()?),
        secrets,
        standing: Arc::new(FileStanding::open(data)?),
        config: settings.engine,
    })
    .await;
    let mut note = discover::own_note(listener.local_addr()?, VERSION);
    note.fingerprint = tls.as_ref().map(|tls| tls.fingerprint().to_owned());
    data::write_note(data, &note)?;
    greet(context, &note)?;
    systemd::ready(listener.local_addr()?);
    let (stop, visits) = (CancellationToken::new(), Visits::default());
    tokio::spawn(stop_when_told(stop.clone(), data.clone()));
    tokio::spawn(memory::give_back(engine.clone()));
    if let Some(idle) = settings.end_when_idle {
        tokio::spawn(stop_when_idle(stop.clone(), data.clone(), engine.clone(), visits.clone(), idle));
    }
    let about = About { durability: durability_name.into(), policy: settings.policy, visits };
    let access = Access {
        spare,
        kept,
        keeper: Arc::new(keeper),
        allowed_hosts: settings.remote.hosts(),
        proxy: settings.remote.proxy,
        tls,
        ..Access::new(token)
    };
    let served = tenure_server::serve(listener, engine.clone(), access, settings.limits, about, stop).await;
    systemd::stopping();
    data::remove_note(data);
    engine.shutdown().await;
    served.context("the daemon stopped serving")?;
    tracing::info!("stopped");
    Ok(Exit::Ok)
}

/// Opens the store; whoever has it is ended first, if we are to take over. Another one may come in between.
async fn open_store(data: &Path, options: tenure_store::Options, take_over: bool) -> anyhow::Result<Arc<FileStore>> {
    let deadline = Instant::now() + TAKE_OVER_MAX;
    loop {
        match FileStore::open(data, options.clone()) {
            Err(tenure_store::Error::Locked { .. }) if take_over && Instant::now() < deadline => {
                if let Some(pid) = stop::end(data, TAKE_OVER_MAX).await? {
                    tracing::info!("process {pid} has ended; this one takes its place");
                }
                tokio::time::sleep(TAKE_OVER_LOOK).await;
            }
            opened => return Ok(opened.map_err(|error| not_opened(data, error))?),
        }
    }
}

fn not_opened(data: &Path, error: tenure_store::Error) -> Problem {
    match error {
        tenure_store::Error::Locked { pid } => {
            let message = format!("the data folder {} is in use by the daemon with pid {pid}", data.display());
            Problem::failed(
                LOCKED,
                message,
                "use that one, end it (`tenure stop`, or `serve --take-over`), or choose another folder with --data",
            )
        }
        other => {
            let message = format!("the data folder {}: {other}", data.display());
            Problem::failed("store", message, data::REFUSED)
        }
    }
}

/// Where systemd listens for us, or else where we are told to.
async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    if let Some(given) = systemd::listener()? {
        // What we are told to listen on was looked at before.
        if !given.1.ip().is_loopback() && given.1 != address {
            let message = format!("the socket that systemd gives, {}, can be reached by others", given.1);
            let hint = "use a loopback address; or allow exactly that one with `listen` and [remote] in config.toml";
            return Err(Problem::usage(message, hint).into());
        }
        return Ok(TcpListener::from_std(given.0)?);
    }
    TcpListener::bind(address).await.map_err(|error| no_listener(address, &error).into())
}

fn no_listener(address: SocketAddr, error: &std::io::Error) -> Problem {
    use std::io::ErrorKind;
    let message = format!("cannot listen on {address}: {error}");
    match error.kind() {
        ErrorKind::AddrInUse => {
            let hint = "end that program, or choose another port: `tenure serve --listen 127.0.0.1:0` takes a free one";
            Problem::failed("address_in_use", format!("{address} is in use by another program"), hint)
        }
        ErrorKind::AddrNotAvailable => {
            let hint = "use one of this machine's addresses (`ip address` lists them), such as 127.0.0.1:8787";
            Problem::failed("listen", message, hint)
        }
        ErrorKind::PermissionDenied => {
            let hint = "ports below 1024 are for root: choose a higher one, such as 127.0.0.1:8787";
            Problem::failed("listen", message, hint)
        }
        _ => Problem::failed("listen", message, "choose another address with --listen, such as 127.0.0.1:8787"),
    }
}

/// Ends what an earlier life left behind, before anything can start anew.
async fn tools(data: &Path, secret_variables: &[String]) -> anyhow::Result<ToolsConfig> {
    let (ledger, mark) = (data.join(LEDGER), data.canonicalize()?.to_string_lossy().into_owned());
    let swept = {
        let (ledger, mark) = (ledger.clone(), mark.clone());
        tokio::task::spawn_blocking(move || tenure_tools::sweep_leftovers(&ledger, &mark)).await?
    };
    swept.iter().for_each(|line| tracing::warn!("{line}"));
    let mut tools = ToolsConfig::new(supervisor()?, ledger, mark);
    tools.outline_cache = Some(data.join(OUTLINE_CACHE));
    tools.scrub.extend(secret_variables.iter().cloned());
    tools.scrub.extend(systemd::VARIABLES.map(str::to_owned));
    Ok(tools)
}

/// This very program, also when its file was replaced by a newer one since it started.
pub fn supervisor() -> anyhow::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { Ok(own) } else { Ok(std::env::current_exe()?) }
}

/// What must never be written or shown: our own token, what looks secret in our environment, keys of providers, and what the user names.
fn secrets(
    token: &str,
    spare: &[String],
    named: BTreeMap<String, Hidden>,
    variables: &[String],
    keys: impl Iterator<Item = (String, String)>,
) -> Secrets {
    let known =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let secret = known.filter(|(name, _)| is_secret_name(name) || variables.contains(name));
    let named = named.into_iter().map(|(name, Hidden(value))| (name, value));
    let own = std::iter::once(("TENURE_TOKEN".to_owned(), token.to_owned()));
    // Each has a name of its own: a mark must stand for one value.
    let coming = spare.iter().enumerate().map(|(at, token)| (format!("TENURE_TOKEN_{}", at + 1), token.clone()));
    let secret: Vec<(String, String)> = secret.collect();
    // A key that a variable holds has that name already.
    let is_known = |key: &String| key.len() >= SECRET_BYTES_MIN && secret.iter().any(|(_, known)| known == key);
    let keys: Vec<_> = keys.filter(|(_, key)| !is_known(key)).collect();
    Secrets::with_keys(secret.into_iter().chain(named).chain(own).chain(coming), keys)
}

fn greet(context: &Context, note: &DaemonInfo) -> anyhow::Result<()> {
    let (address, token_file) = (&note.address, context.data.join(discover::TOKEN_FILE));
    let (data, token_file) = (context.data.display(), token_file.display());
    if context.output == Output::Json {
        let told = json!({
            "address": address, "pid": note.pid, "version": note.version, "fingerprint": note.fingerprint,
            "data": data.to_string(), "token_file": token_file.to_string(),
        });
        return ignore_closed(terminal::print_line(&told.to_string()));
    }
    let (scheme, certificate, trust) = match &note.fingerprint {
        None => ("http", String::new(), String::new()),
        Some(fingerprint) => {
            let own = context.data.join(remote::CERTIFICATE_FILE);
            let trust = if own.exists() { format!("--cacert '{}' ", own.display()) } else { String::new() };
            ("https", format!("Certificate: SHA-256 {fingerprint}\n"), trust)
        }
    };
    let near = discover::reachable(address);
    let lines = format!(
        "Tenure {VERSION} listens on {scheme}://{address} (process {}).\n\
         Data folder: {data}\n\
         Token file:  {token_file}\n{certificate}\
         Try it:      curl {trust}-H \"Authorization: Bearer $(cat '{token_file}')\" {scheme}://{near}/v1/sessions\n\
         Stop it with Ctrl-C.",
        note.pid
    );
    ignore_closed(terminal::print_line(&lines))
}

/// A daemon does not depend on somebody reading its greeting.
fn ignore_closed(written: std::io::Result<()>) -> anyhow::Result<()> {
    if let Err(error) = written {
        tracing::debug!("stdout: {error}");
    }
    Ok(())
}

/// The first signal stops in good order, the second one at once.
async fn stop_when_told(stop: CancellationToken, data: PathBuf) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        tracing::warn!("signals cannot be watched; only a kill will end this daemon");
        return;
    };
    for stopping in ["stopping; once more to stop at once", "stopped at once"] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("{stopping}");
        if stop.is_cancelled() {
            std::process::exit(i32::from(Exit::Interrupted as u8));
        }
        // Nobody should find us any more from here on.
        data::remove_note(&data);
        stop.cancel();
    }
}

/// SIGHUP: somebody has put the log aside.
async fn reopen_when_told(file: LogFile) {
    let Ok(mut told) = signal(SignalKind::hangup()) else { return };
    while told.recv().await.is_some() {
        match file.reopen() {
            Ok(()) => tracing::info!("the log was opened again"),
            Err(error) => tracing::warn!("the log could not be opened again: {error}"),
        }
    }
}

async fn stop_when_idle(stop: CancellationToken, data: PathBuf, engine: Engine, visits: Visits, idle: Duration) {
    let look = (idle / 4).clamp(Duration::from_millis(10), IDLE_LOOK_MAX);
    let (mut needed_at, mut counted) = (Instant::now(), visits.count());
    while needed_at.elapsed() < idle {
        tokio::time::sleep(look).await;
        let visited = visits.count() != counted;
        if visited || engine.open_turns() > 0 || engine.subscribers() > 0 {
            (needed_at, counted) = (Instant::now(), visits.count());
        }
    }
    tracing::info!("nobody needs this daemon any more");
    data::remove_note(&data);
    stop.cancel();
}

/// Whoever started us may have blocked the signals that are to end us, and that is inherited.
fn hear_signals() {
    if let Err(error) = nix::sys::signal::SigSet::empty().thread_set_mask() {
        tracing::debug!("signals stay blocked: {error}");
    }
}

/// Every connection and open log is a file to the system; the usual limit is below ours.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays as it is: {error}");
    }
}
