//! Who runs dlock.

use crate::lock::Holder;
use crate::supervise::ancestry;

/// The process `pid` of this user as others see it: host by `uname`, user by effective uid, the command's first word and the label.
///
/// Costs one read of `/etc/passwd` and one of `/proc`; a uid without a name there is shown as a number, and users of a directory
/// service too, since asking it could wait for a network.
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

/// This process as one who breaks a claim: under sudo the user who called it is named, for whoever is asked to
/// leave wants to know whom to call.
pub fn invoker(command: String) -> Holder {
    let mut me = of_process(std::process::id(), command, None);
    let caller = std::env::var("SUDO_USER").ok();
    if let Some(caller) = caller.filter(|name| rustix::process::getuid().is_root() && is_name(name)) {
        me.user = format!("{caller} as {}", me.user);
    }
    me
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text != "root" && !text.chars().any(char::is_control)
}

fn user_name(passwd: &[u8], uid: u32) -> Option<String> {
    let uid = uid.to_string();
    let line = passwd.split(|b| *b == b'\n').find(|line| {
        // name:password:uid:...; lines of NIS start with + or - and name nobody.
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

    #[test]
    fn this_process_has_a_user_and_a_host() {
        let me = of_process(7, "./x".into(), Some("l".into()));
        assert_eq!((me.pid, me.command.as_str(), me.label.as_deref()), (7, "./x", Some("l")));
        assert!(!me.user.is_empty() && !me.host.is_empty());
    }

    #[test]
    fn a_caller_is_a_name() {
        assert!(
            is_name("ci")
                && !is_name("root")
                && !is_name("")
                && !is_name("a\nb")
                && !is_name(&"x".repeat(65))
        );
    }
}
