//! The process that runs dlock.

use crate::lock::Holder;
use crate::supervise::ancestry;

/// Returns the process `pid` of this user as other clients see it: the host of `uname`, the user by effective uid, the first word
/// of the command, and the label.
///
/// Reads `/etc/passwd` and `/proc`, each once. A user without a name there is shown as a number, also a user of a directory
/// service, because asking that service could take long.
pub fn of_process(pid: u32, command: String, label: Option<String>) -> Holder {
    let uid = rustix::process::geteuid().as_raw();
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    Holder {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid,
        born: ancestry::born(pid),
        user: user_name(&passwd, uid).unwrap_or_else(|| uid.to_string()),
        command,
        label,
        ..Holder::default()
    }
}

/// Returns this process as a client that breaks a claim. Under sudo it also names the calling user, for questions of
/// the claim's owner.
pub fn invoker(command: String) -> Holder {
    let mut me = of_process(std::process::id(), command, None);
    let caller = std::env::var("SUDO_USER").ok();
    let is_another = |name: &String| !["", "root"].contains(&name.as_str());
    if let Some(caller) = caller.filter(is_another).filter(|_| rustix::process::getuid().is_root()) {
        me.user = format!("{caller} as {}", me.user);
    }
    me
}

fn user_name(passwd: &[u8], uid: u32) -> Option<String> {
    let uid = uid.to_string();
    let line = passwd.split(|b| *b == b'\n').find(|line| {
        // name:password:uid:...; lines of NIS start with + or -, and have no name.
        !line.starts_with(b"+")
            && !line.starts_with(b"-")
            && line.split(|b| *b == b':').nth(2) == Some(uid.as_bytes())
    })?;
    let name = line.split(|b| *b == b':').next()?;
    Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_third_field() {
        let passwd =
            b"root:x:0:0:root:/root:/bin/sh\n+::1000:::\nci:x:1000:1000::/home/ci:/bin/sh\nbad\n:x:7::::\n";
        assert_eq!(user_name(passwd, 0).as_deref(), Some("root"));
        assert_eq!(user_name(passwd, 1000).as_deref(), Some("ci"));
        assert_eq!(user_name(passwd, 7), None);
        assert_eq!(user_name(passwd, 1), None);
    }
}
