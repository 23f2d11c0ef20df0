//! Tokens by name, known by their hashes alone. A secret leaves the daemon once, when it is made, and is never kept.

use std::{
    io,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tenure_core::time::Timestamp;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::{
    caller::{Caller, Via},
    rates::Bucket,
};

/// The name of the daemon's own token. No other may have it.
pub const OWNER: &str = "owner";
/// What the secret of a named token begins with, so that people and scanners know it when they see it.
const SECRET_BEGINS: &str = "tenure_";
const SECRET_BYTES: usize = 32;
const NAME_CHARS_MAX: usize = 64;
const SUM_CHARS: usize = 16;
/// In larger files no bit is looked for: each is tried, and it would take minutes.
pub const MEND_BYTES_MAX: u64 = 16 << 10;
/// How much of a secret is shown.
const SHOWN_CHARS: usize = 4;

/// Where tokens are kept. Both must be on disk, whole, when they return.
pub trait Keeper: Send + Sync + 'static {
    /// The content of `tokens.json`.
    fn keep_named(&self, json: &[u8]) -> io::Result<()>;
    /// The daemon's own token.
    fn keep_own(&self, token: &str) -> io::Result<()>;
}

/// For daemons that keep nothing.
pub struct Forgetful;

impl Keeper for Forgetful {
    fn keep_named(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn keep_own(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
}

/// The hash of a secret. Comparing two takes the same time wherever they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(blake3::Hash);

impl Hash {
    pub(crate) fn of(secret: &[u8]) -> Self {
        Self(blake3::hash(secret))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0.to_hex())
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        blake3::Hash::from_hex(text).map(Self).map_err(|_| de::Error::custom("a hash has 64 hex digits"))
    }
}

/// One token as `tokens.json` keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedToken {
    pub name: String,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub hash: Hash,
    /// The last characters of the secret.
    pub last4: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Earlier>,
}

/// The secret of before, which is still taken for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Earlier {
    pub hash: Hash,
    pub until: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tokens: Vec<NamedToken>,
    /// The secret of before of the daemon's own token, while it is still taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner_earlier: Option<Earlier>,
    /// Of all the rest. Not there in files of earlier versions, and in those that people write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sum: Option<String>,
}

/// What is kept of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    pub named: Vec<NamedToken>,
    /// The secret of before of the daemon's own token, while it is still taken.
    pub owner_earlier: Option<Earlier>,
}

/// Reads what [`Keeper::keep_named`] was given.
pub fn read_tokens(json: &[u8]) -> Result<Kept, String> {
    let File { tokens, owner_earlier, sum } = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    for (at, token) in tokens.iter().enumerate() {
        check_name(&token.name).map_err(|why| format!("the token {:?}: {why}", token.name))?;
        if tokens[..at].iter().any(|other| other.name == token.name) {
            return Err(format!("there are two tokens named {}", token.name));
        }
        if token.last4.chars().count() > SHOWN_CHARS {
            return Err(format!("the token {}: last4 is too long", token.name));
        }
    }
    let kept = Kept { named: tokens, owner_earlier };
    if sum.is_some_and(|sum| kept.sum().ok() != Some(sum)) {
        return Err("its sum does not fit: the disk has changed it; if you did, remove \"sum\"".into());
    }
    Ok(kept)
}

/// What [`Keeper::keep_named`] was given, where one turned bit explains what is wrong with it.
pub fn mend_tokens(json: &[u8]) -> Option<Vec<u8>> {
    let is_sealed = |json: &[u8]| serde_json::from_slice::<File>(json).is_ok_and(|file| file.sum.is_some());
    mend_bit(json, |json| is_sealed(json) && read_tokens(json).is_ok())
}

/// The one that is right among all that differ from these bytes by one bit.
pub fn mend_bit(bytes: &[u8], is_right: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    if bytes.len() as u64 > MEND_BYTES_MAX {
        return None;
    }
    let mut bytes = bytes.to_vec();
    let found = (0..bytes.len() * 8).find(|bit| {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let is_right = is_right(&bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        is_right
    })?;
    bytes[found / 8] ^= 1 << (found % 8);
    Some(bytes)
}

impl Kept {
    /// The content of `tokens.json`.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let Kept { named, owner_earlier } = self.clone();
        serde_json::to_vec_pretty(&File { tokens: named, owner_earlier, sum: Some(self.sum()?) })
    }

    fn sum(&self) -> serde_json::Result<String> {
        let told = serde_json::to_vec(&(&self.named, &self.owner_earlier))?;
        Ok(sum_of(&told))
    }
}

/// The sum that small files carry.
pub fn sum_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..SUM_CHARS].to_owned()
}

pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    match name {
        OWNER => Err("that is the name of the daemon's own token"),
        _ if name.is_empty() || name.len() > NAME_CHARS_MAX => Err("a name has 1 to 64 characters"),
        _ if !name.bytes().all(plain) || !name.as_bytes()[0].is_ascii_alphanumeric() => {
            Err("a name has small letters, digits, '.', '_' and '-', and begins with a letter or digit")
        }
        _ => Ok(()),
    }
}

/// Bytes of chance, in hex: for secrets, and for keys that nobody else will use.
pub fn random_hex() -> io::Result<String> {
    let mut bytes = [0u8; SECRET_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Why something about a token was refused.
#[derive(Debug)]
pub(crate) enum Refused {
    BadName(&'static str),
    /// The daemon has no more secrets for its own token that it made known when it started.
    NoSpare,
    Exists,
    Unknown,
    /// The daemon's own token cannot be revoked.
    Owner,
    TooMany,
    NotKept(io::Error),
}

/// What a secret turned out to be.
pub(crate) enum Known {
    Valid(Caller),
    Expired,
    Unknown,
}

/// A token and what hangs on it while the daemon runs.
#[derive(Clone)]
struct Entry {
    token: NamedToken,
    name: Arc<str>,
    /// Ends with the present secret.
    life: CancellationToken,
    /// Ends with the secret of before.
    earlier_life: CancellationToken,
    bucket: Arc<Bucket>,
}

impl Entry {
    fn new(token: NamedToken, stop: &CancellationToken) -> Self {
        let (life, earlier_life) = (stop.child_token(), stop.child_token());
        Self { name: token.name.as_str().into(), token, life, earlier_life, bucket: Arc::default() }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.token.expires_at.is_some_and(|at| at <= now)
    }

    fn caller(&self, life: &CancellationToken) -> Caller {
        let (name, life, bucket) = (Arc::clone(&self.name), life.clone(), Arc::clone(&self.bucket));
        Caller { name, life, bucket, via: Via::Token }
    }
}

pub(crate) struct Tokens {
    /// The daemon's own first.
    entries: RwLock<Vec<Entry>>,
    /// Changes come one after the other; each is on disk before it holds.
    changes: Mutex<Vec<String>>,
    keeper: Arc<dyn Keeper>,
    stop: CancellationToken,
    tokens_max: usize,
    /// Told when something may end at another time than was thought.
    pub(crate) changed: Notify,
}

impl Tokens {
    /// `spare` are secrets for the daemon's own token that were made known to whoever blots secrets out.
    pub(crate) fn new(
        own: &str,
        spare: Vec<String>,
        kept: Kept,
        keeper: Arc<dyn Keeper>,
        tokens_max: usize,
        stop: CancellationToken,
    ) -> Self {
        let owner = NamedToken {
            name: OWNER.into(),
            created_at: now(),
            expires_at: None,
            hash: Hash::of(own.as_bytes()),
            last4: last4(own),
            earlier: kept.owner_earlier,
        };
        let entries = std::iter::once(owner).chain(kept.named).map(|token| Entry::new(token, &stop)).collect();
        let (entries, changes) = (RwLock::new(entries), Mutex::new(spare));
        Self { entries, changes, keeper, stop, tokens_max, changed: Notify::new() }
    }

    fn entries(&self) -> Vec<Entry> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whose secret this is. Every token is looked at, so that the time tells nothing.
    pub(crate) fn find(&self, secret: &[u8], now: Timestamp) -> Known {
        let hash = Hash::of(secret);
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Known::Unknown;
        for entry in entries.iter() {
            let earlier = entry.token.earlier.as_ref().filter(|earlier| earlier.hash == hash && earlier.until > now);
            let life = match (entry.token.hash == hash, earlier) {
                (true, _) => &entry.life,
                (false, Some(_)) => &entry.earlier_life,
                (false, None) => continue,
            };
            found = if entry.is_over(now) { Known::Expired } else { Known::Valid(entry.caller(life)) };
        }
        // An empty secret is nobody's, whatever was configured.
        if secret.is_empty() { Known::Unknown } else { found }
    }

    /// All but the daemon's own, by name.
    pub(crate) fn list(&self) -> Vec<NamedToken> {
        let mut all: Vec<NamedToken> = self.entries().into_iter().skip(1).map(|entry| entry.token).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The new token and its secret.
    pub(crate) async fn add(&self, name: &str, valid: Option<Duration>) -> Result<(NamedToken, String), Refused> {
        check_name(name).map_err(Refused::BadName)?;
        let _turn = self.changes.lock().await;
        let mut entries = self.entries();
        if entries.iter().any(|entry| entry.token.name == name) {
            return Err(Refused::Exists);
        }
        if entries.len() > self.tokens_max {
            return Err(Refused::TooMany);
        }
        let (secret, now) = (new_secret()?, now());
        let token = NamedToken {
            name: name.to_owned(),
            created_at: now,
            expires_at: valid.map(|valid| after(now, valid)),
            hash: Hash::of(secret.as_bytes()),
            last4: last4(&secret),
            earlier: None,
        };
        entries.push(Entry::new(token.clone(), &self.stop));
        self.keep(entries).await?;
        Ok((token, secret))
    }

    /// What was begun with it ends now.
    pub(crate) async fn revoke(&self, name: &str) -> Result<(), Refused> {
        if name == OWNER {
            return Err(Refused::Owner);
        }
        let _turn = self.changes.lock().await;
        let mut entries = self.entries();
        let at = entries.iter().position(|entry| entry.token.name == name).ok_or(Refused::Unknown)?;
        let gone = entries.remove(at);
        self.keep(entries).await?;
        gone.life.cancel();
        gone.earlier_life.cancel();
        Ok(())
    }

    /// A new secret for the same name. The one of before ends now, or when its grace is over.
    pub(crate) async fn rotate(&self, name: &str, grace: Option<Duration>) -> Result<(NamedToken, String), Refused> {
        let mut spare = self.changes.lock().await;
        let mut entries = self.entries();
        let entry = entries.iter_mut().find(|entry| entry.token.name == name).ok_or(Refused::Unknown)?;
        let now = now();
        let secret = match (name == OWNER, spare.pop()) {
            (true, Some(known)) => known,
            // One that was not made known before would not be blotted out of what agents say.
            (true, None) => return Err(Refused::NoSpare),
            (false, unused) => {
                spare.extend(unused);
                new_secret()?
            }
        };
        let (past_hash, past_life) = (entry.token.hash, entry.life.clone());
        let oldest_life = entry.earlier_life.clone();
        entry.token.earlier = grace.map(|grace| Earlier { hash: past_hash, until: after(now, grace) });
        (entry.token.hash, entry.token.last4) = (Hash::of(secret.as_bytes()), last4(&secret));
        (entry.life, entry.earlier_life) = (self.stop.child_token(), past_life.clone());
        let token = entry.token.clone();
        if name == OWNER {
            self.keep_own(secret.clone(), entries).await?;
        } else {
            self.keep(entries).await?;
        }
        oldest_life.cancel();
        if grace.is_none() {
            past_life.cancel();
        }
        Ok((token, secret))
    }

    async fn keep(&self, entries: Vec<Entry>) -> Result<(), Refused> {
        let json = kept_of(&entries).to_json().map_err(|error| Refused::NotKept(error.into()))?;
        self.keep_with(entries, move |keeper| keeper.keep_named(&json)).await
    }

    /// What is said of the secret of before goes first: should nothing come after it, it tells of the present one.
    async fn keep_own(&self, secret: String, entries: Vec<Entry>) -> Result<(), Refused> {
        let (before, now) = (kept_of(&self.entries()), kept_of(&entries));
        let json = now.to_json().map_err(|error| Refused::NotKept(error.into()))?;
        let is_told = before == now;
        self.keep_with(entries, move |keeper| {
            if !is_told {
                keeper.keep_named(&json)?;
            }
            keeper.keep_own(&secret)
        })
        .await
    }

    /// First on disk, then in force.
    async fn keep_with(
        &self,
        entries: Vec<Entry>,
        write: impl FnOnce(&dyn Keeper) -> io::Result<()> + Send + 'static,
    ) -> Result<(), Refused> {
        let keeper = Arc::clone(&self.keeper);
        let kept = tokio::task::spawn_blocking(move || write(&*keeper)).await;
        kept.map_err(|error| Refused::NotKept(io::Error::other(error)))?.map_err(Refused::NotKept)?;
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = entries;
        self.changed.notify_one();
        Ok(())
    }

    /// Ends what hangs on secrets whose time is over, and says when the next one's is.
    pub(crate) fn end_expired(&self, now: Timestamp) -> Option<Timestamp> {
        let mut next = None;
        for entry in self.entries() {
            let earlier = entry.token.earlier.as_ref().map(|earlier| earlier.until);
            for (until, lives) in
                [(entry.token.expires_at, &[&entry.life, &entry.earlier_life][..]), (earlier, &[&entry.earlier_life])]
            {
                match until {
                    Some(until) if until <= now => lives.iter().for_each(|life| life.cancel()),
                    Some(until) => next = Some(next.map_or(until, |next: Timestamp| next.min(until))),
                    None => {}
                }
            }
        }
        next
    }
}

fn kept_of(entries: &[Entry]) -> Kept {
    let owner_earlier = entries.first().and_then(|owner| owner.token.earlier.clone());
    Kept { named: entries.iter().skip(1).map(|entry| entry.token.clone()).collect(), owner_earlier }
}

fn new_secret() -> Result<String, Refused> {
    Ok(format!("{SECRET_BEGINS}{}", random_hex().map_err(Refused::NotKept)?))
}

fn last4(secret: &str) -> String {
    let from = secret.char_indices().rev().nth(SHOWN_CHARS - 1).map_or(0, |(at, _)| at);
    secret[from..].to_owned()
}

pub(crate) fn after(now: Timestamp, time: Duration) -> Timestamp {
    now.plus_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens::new("own-secret", vec![], Kept::default(), Arc::new(Forgetful), 3, CancellationToken::new())
    }

    fn name_of(known: Known) -> Option<String> {
        match known {
            Known::Valid(caller) => Some(caller.name.to_string()),
            Known::Expired => Some("expired".into()),
            Known::Unknown => None,
        }
    }

    #[test]
    fn names() {
        for (name, fits) in [
            ("ci", true),
            ("a.b_c-9", true),
            ("9", true),
            (OWNER, false),
            ("", false),
            (".x", false),
            ("CI", false),
            ("a b", false),
            ("ü", false),
        ] {
            assert_eq!(check_name(name).is_ok(), fits, "{name}");
        }
        assert!(check_name(&"a".repeat(65)).is_err());
    }

    #[tokio::test]
    async fn a_secret_is_known_until_its_time_is_over() {
        let tokens = tokens();
        let (token, secret) = tokens.add("ci", Some(Duration::from_secs(60))).await.unwrap();
        assert!(secret.ends_with(&token.last4) && token.last4.len() == 4);
        assert_eq!(name_of(tokens.find(secret.as_bytes(), now())).as_deref(), Some("ci"));
        let later = after(now(), Duration::from_secs(61));
        assert_eq!(name_of(tokens.find(secret.as_bytes(), later)).as_deref(), Some("expired"));
        assert_eq!(name_of(tokens.find(b"own-secret", later)).as_deref(), Some(OWNER));
        assert_eq!(name_of(tokens.find(b"", now())), None);
        let Known::Valid(caller) = tokens.find(secret.as_bytes(), now()) else { panic!("it is valid") };
        assert!(tokens.end_expired(now()).is_some() && !caller.life.is_cancelled());
        assert_eq!(tokens.end_expired(later), None);
        assert!(caller.life.is_cancelled());
    }

    #[tokio::test]
    async fn a_rotated_secret_lives_as_long_as_its_grace() {
        let tokens = tokens();
        let (_, first) = tokens.add("ci", None).await.unwrap();
        let (_, second) = tokens.rotate("ci", Some(Duration::from_secs(60))).await.unwrap();
        let at = |secret: &str, when| name_of(tokens.find(secret.as_bytes(), when));
        assert_eq!((at(&first, now()), at(&second, now())), (Some("ci".into()), Some("ci".into())));
        assert_eq!(at(&first, after(now(), Duration::from_secs(61))), None);
        let Known::Valid(old) = tokens.find(first.as_bytes(), now()) else { panic!("it has its grace") };
        let (_, third) = tokens.rotate("ci", None).await.unwrap();
        assert_eq!((at(&first, now()), at(&second, now()), at(&third, now())), (None, None, Some("ci".into())));
        assert!(old.life.is_cancelled());
    }

    #[tokio::test]
    async fn there_is_room_for_so_many() {
        let tokens = tokens();
        for name in ["a", "b", "c"] {
            tokens.add(name, None).await.unwrap();
        }
        assert!(matches!(tokens.add("d", None).await, Err(Refused::TooMany)));
        assert!(matches!(tokens.add("a", None).await, Err(Refused::Exists)));
        assert!(matches!(tokens.revoke(OWNER).await, Err(Refused::Owner)));
        assert!(matches!(tokens.revoke("d").await, Err(Refused::Unknown)));
        tokens.revoke("a").await.unwrap();
        assert_eq!(tokens.list().into_iter().map(|token| token.name).collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn an_empty_own_token_lets_nobody_in() {
        let tokens = Tokens::new("", vec![], Kept::default(), Arc::new(Forgetful), 3, CancellationToken::new());
        assert_eq!(name_of(tokens.find(b"", now())), None);
    }

    #[test]
    fn every_bit_that_changed_in_the_file_is_noticed() {
        let token = NamedToken {
            name: "ci".into(),
            created_at: Timestamp::from_ms(1_735_689_600_000),
            expires_at: Some(Timestamp::from_ms(1_735_689_700_000)),
            hash: Hash::of(b"x"),
            last4: "4f2a".into(),
            earlier: None,
        };
        let earlier = Earlier { hash: Hash::of(b"y"), until: Timestamp::from_ms(1_735_689_650_000) };
        let kept = Kept { named: vec![token], owner_earlier: Some(earlier) };
        let good = kept.to_json().unwrap();
        assert_eq!(read_tokens(&good), Ok(kept.clone()));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // The case of a hex digit tells nothing.
            assert!(read_tokens(&bad).is_err() || read_tokens(&bad).as_ref() == Ok(&kept), "bit {bit}");
            if bit % 97 == 0 {
                assert_eq!(read_tokens(&mend_tokens(&bad).unwrap()).as_ref(), Ok(&kept), "bit {bit}");
            }
        }
        let mut two = good.clone();
        two[30] ^= 3;
        assert_eq!(mend_tokens(&two), None, "two bits are not one");
        let by_hand = serde_json::json!({ "tokens": kept.named }).to_string();
        assert_eq!(mend_tokens(&by_hand.as_bytes()[1..]), None, "nothing tells what was there");
        assert_eq!(read_tokens(by_hand.as_bytes()).map(|kept| kept.named), Ok(kept.named));
    }
}
