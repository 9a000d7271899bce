//! A certificate authority for one test, and its certificates.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates a directory with `ca.pem`, `server.pem` and `.key` for 127.0.0.1, `client.pem` and `.key`, and `other.pem`,
/// an authority that signed none of them.
pub(crate) fn folder() -> PathBuf {
    let folder = super::shared_folder("certificates");
    let new = |name: &str| {
        format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} -keyout {name}.key"
        )
    };
    for name in ["ca", "other"] {
        openssl(&folder, &format!("{} -x509 -days 2 -out {name}.pem", new(name)));
    }
    let extensions = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
    std::fs::write(folder.join("extensions"), extensions).expect("writes");
    for name in ["server", "client"] {
        openssl(&folder, &format!("{} -out {name}.csr", new(name)));
        let signed = format!("x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2");
        openssl(&folder, &format!("{signed} -extfile extensions -out {name}.pem"));
    }
    folder
}

/// Runs openssl with `words` in `folder`.
pub(crate) fn openssl(folder: &Path, words: &str) {
    let output = Command::new("openssl").args(words.split(' ')).current_dir(folder).output();
    let output = output.expect("openssl runs");
    assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
}
