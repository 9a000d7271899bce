//! A certificate authority for one test, and its certificates.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates a directory with `ca.pem`, `server.pem` and `.key` for 127.0.0.1, `client.pem` and `.key`, and `other.pem`,
/// an authority that signed none of them.
pub(crate) fn folder() -> PathBuf {
    let folder = super::shared_folder("certificates");
    for name in ["ca", "other"] {
        request(&folder, name, &["-x509", "-days", "2", "-out", &format!("{name}.pem")]);
    }
    let extensions = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
    std::fs::write(folder.join("extensions"), extensions).expect("writes");
    for name in ["server", "client"] {
        let (wish, pem) = (format!("{name}.csr"), format!("{name}.pem"));
        request(&folder, name, &["-out", &wish]);
        let signed_by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        let rest = ["-days", "2", "-extfile", "extensions", "-out", &pem];
        openssl(&folder, &[&["x509", "-req", "-in", &wish], &signed_by[..], &rest].concat());
    }
    folder
}

/// Creates a key for `name` and the file that openssl makes from `words`.
fn request(folder: &Path, name: &str, words: &[&str]) {
    let (key, subject) = (format!("{name}.key"), format!("/CN={name}"));
    let new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    openssl(folder, &[&new[..], &["-subj", &subject, "-keyout", &key], words].concat());
}

fn openssl(folder: &Path, words: &[&str]) {
    let output = Command::new("openssl").args(words).current_dir(folder).output().expect("openssl runs");
    assert!(output.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
