//! Every bound of the doors, by name. What is over a bound is refused with a sentence or disconnected, never buffered.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at one time; one more is answered `too_many_connections` and closed.
    pub connections_max: usize,
    /// Connections at one time from one address, or one IPv6 network.
    pub connections_per_address_max: usize,
    /// Event streams at one time, so that some connections are left for commands.
    pub streams_max: usize,
    /// Requests of one token in a second, over time. By default more than one machine can answer, so that nothing but a
    /// runaway is held up.
    pub requests_per_second_max: usize,
    /// Requests of one token at once, after a pause.
    pub requests_burst_max: usize,
    /// Requests of one address in a minute that showed no valid token and are told so each.
    pub failures_per_minute_max: usize,
    /// Named tokens.
    pub tokens_max: usize,
    /// Browsers that are logged in at one time; one more pushes out the oldest.
    pub logins_max: usize,
    /// How long a browser stays logged in.
    pub login_time: Duration,
    pub body_bytes_max: usize,
    /// Of one attachment.
    pub attachment_bytes_max: usize,
    /// What an imported session may unpack to, and the file itself.
    pub import_bytes_max: usize,
    /// How slow an import may come once `body_read` is used up; over time, and never on the credit of a fast beginning.
    pub import_bytes_per_second_min: usize,
    /// Imports at one time.
    pub imports_max: usize,
    /// How much of a body that is not wanted is read and dropped, so that its sender gets to see the answer.
    pub drain_bytes_max: usize,
    pub header_bytes_max: usize,
    pub headers_max: usize,
    /// How long a request's head may take from its first byte on; also how long TLS may take to come about.
    pub header_read: Duration,
    /// How long a connection may stay without a request.
    pub idle: Duration,
    /// How long a request's body may take.
    pub body_read: Duration,
    /// How long a client may take nothing of what is written to it.
    pub write_stall: Duration,
    /// How often an event stream with nothing to tell shows a sign of life.
    pub keep_alive: Duration,
    /// How long requests under way may take when the daemon stops.
    pub stop_grace: Duration,
    pub text: TextLimits,
}

/// How long the texts and lists of a request may be.
#[derive(Debug, Clone)]
pub struct TextLimits {
    pub title_chars_max: usize,
    /// Of a role, a mode, a model, a tool and a label.
    pub name_chars_max: usize,
    pub labels_max: usize,
    pub parts_max: usize,
    pub reason_chars_max: usize,
    pub path_bytes_max: usize,
    pub memory_bytes_max: usize,
    pub preferences_bytes_max: usize,
    /// Rules, tools and verification commands of a policy, each.
    pub policy_entries_max: usize,
    /// Of a rule's pattern and a verification command.
    pub policy_entry_chars_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            connections_per_address_max: 3072,
            streams_max: 2048,
            requests_per_second_max: 20_000,
            requests_burst_max: 20_000,
            failures_per_minute_max: 120,
            tokens_max: 128,
            logins_max: 64,
            login_time: Duration::from_secs(12 * 3600),
            body_bytes_max: 1024 * 1024,
            attachment_bytes_max: 10 * 1024 * 1024,
            import_bytes_max: 1024 * 1024 * 1024,
            import_bytes_per_second_min: 4096,
            imports_max: 2,
            drain_bytes_max: 8 * 1024 * 1024,
            header_bytes_max: 32 * 1024,
            headers_max: 64,
            header_read: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            body_read: Duration::from_secs(30),
            write_stall: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            stop_grace: Duration::from_secs(5),
            text: TextLimits::default(),
        }
    }
}

impl Default for TextLimits {
    fn default() -> Self {
        Self {
            title_chars_max: 200,
            name_chars_max: 200,
            labels_max: 32,
            parts_max: 64,
            reason_chars_max: 2000,
            path_bytes_max: 4096,
            memory_bytes_max: 64 * 1024,
            preferences_bytes_max: 64 * 1024,
            policy_entries_max: 256,
            policy_entry_chars_max: 4096,
        }
    }
}
