//! What a word was meant to be that is no command.

/// What word processors and web pages make of two hyphens.
pub const LONG_DASHES: [char; 3] = ['\u{2013}', '\u{2014}', '\u{2212}'];

/// Words that a shell knows by itself, and no program.
const BUILTINS: [&str; 44] = [
    "!", ".", ":", "[[", "alias", "bg", "break", "builtin", "case", "cd", "command", "continue", "declare",
    "dirs", "eval", "exec", "exit", "export", "fg", "for", "function", "hash", "history", "if", "jobs",
    "let", "local", "popd", "pushd", "read", "readonly", "return", "set", "shift", "shopt", "source",
    "times", "trap", "type", "ulimit", "umask", "unset", "while", "{",
];

/// What to do about `command`, which was not found; empty if there is nothing to say.
pub(super) fn advice(command: &str) -> String {
    if command.starts_with(LONG_DASHES) {
        return ", which begins with a long dash; write two hyphens".to_owned();
    }
    if command.starts_with('-') {
        return "; options of dlock go before --, those of the command after the command".to_owned();
    }
    if BUILTINS.contains(&command) {
        return ", which is built into shells; run it with -c".to_owned();
    }
    if command.contains(char::is_whitespace) || command.contains(['|', ';', '>', '<', '&']) {
        return "; write the words without quotation marks, or a line of shell with -c".to_owned();
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_says_what_was_meant() {
        for (command, part) in [
            ("cd", "built into shells; run it with -c"),
            ("ls -l", "without quotation marks, or a line of shell with -c"),
            ("a|b", "with -c"),
            ("--wait", "options of dlock go before --"),
            ("\u{2014}wait", "a long dash"),
        ] {
            assert!(advice(command).contains(part), "{command}");
        }
        assert_eq!(advice("no-such-command"), "");
        assert!(BUILTINS.is_sorted());
    }
}
