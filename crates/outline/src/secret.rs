//! Which files look as if they held secrets. Only names are looked at, never what is in the file.

/// Folders in which everything is private.
const FOLDERS: [&str; 5] = [".ssh", ".aws", ".gnupg", ".kube", ".docker"];
const ENDINGS: [&str; 9] = ["pem", "key", "p12", "pfx", "jks", "keystore", "kdbx", "ppk", "asc"];
const NAMES: [&str; 7] = [".netrc", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".pgpass", ".envrc"];
/// Whatever their ending: `secrets.py` is where many keep them.
const STEMS: [&str; 5] = ["secret", "secrets", "credential", "credentials", "passwords"];
const KEY_FILES: [&str; 4] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];

/// Whether a file is never shown unasked, by its path.
pub fn looks_secret(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let (folders, name) = lower.rsplit_once('/').unwrap_or(("", &lower));
    let stem = name.split('.').next().unwrap_or_default();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    folders.split('/').any(|folder| FOLDERS.contains(&folder))
        || name == ".env"
        || name.starts_with(".env.")
        || name.ends_with(".env")
        || NAMES.contains(&name)
        || ENDINGS.contains(&ending)
        || STEMS.contains(&stem)
        || KEY_FILES.iter().any(|key| name.starts_with(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets() {
        let secret = [".env", "a/.env.local", "x/prod.env", "k/server.pem", "id_rsa", "a/id_ed25519.pub", "Secrets.py"];
        let more = [".ssh/config", "home/.aws/x.py", "credentials.json", "a/.netrc", "tls.KEY"];
        let plain = ["src/main.rs", "environment.py", "keys.go", "a/secretary.ts", "monkey.c", "src/pem.rs"];
        assert_eq!(secret.iter().chain(&more).filter(|path| !looks_secret(path)).count(), 0);
        assert_eq!(plain.iter().filter(|path| looks_secret(path)).count(), 0);
    }
}
